#include "attention/sm90_unfused/kernels.h"
#include "core/cuda_check.h"

namespace sparsek::attn::sm90_unfused {
namespace {

constexpr int kThreads = 128;

// One CTA for each (batch, head, query).
__global__ void fill_rows(Chunk chunk, std::int64_t value_dim, std::int64_t kv_len, Matrices out,
                          Matrices weights, Matrices lse) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t q = row % chunk.num_rows;
  const std::int64_t head = row / chunk.num_rows % chunk.num_heads;
  const std::int64_t batch = row / chunk.num_rows / chunk.num_heads;
  const auto offset = [=](const Matrices& m) {
    return batch * m.batch_stride + head * m.head_stride + q * m.row_stride;
  };
  auto* out_row = static_cast<std::uint16_t*>(out.data) + offset(out);
  for (std::int64_t i = threadIdx.x; i < value_dim; i += blockDim.x) out_row[i] = 0;
  if (weights.data != nullptr) {
    auto* weights_row = static_cast<std::uint16_t*>(weights.data) + offset(weights);
    for (std::int64_t i = threadIdx.x; i < kv_len; i += blockDim.x) weights_row[i] = 0;
  }
  if (lse.data != nullptr && threadIdx.x == 0) {
    static_cast<float*>(lse.data)[offset(lse)] = -INFINITY;
  }
}

}  // namespace

void fill_empty(const Chunk& chunk, std::int64_t value_dim, std::int64_t kv_len,
                const Matrices& out, const Matrices& weights, const Matrices& lse,
                cudaStream_t stream) {
  const std::int64_t rows = chunk.num_batches * chunk.num_heads * chunk.num_rows;
  fill_rows<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(chunk, value_dim, kv_len, out,
                                                                  weights, lse);
  cuda_check(cudaGetLastError(), "attention: empty rows");
}

}  // namespace sparsek::attn::sm90_unfused
