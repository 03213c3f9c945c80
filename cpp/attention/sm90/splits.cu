#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/sm90/splits.h"
#include "core/integers.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::attn::sm90 {
namespace {

constexpr int kWarps = 4;     // of a CTA
constexpr int kColumns = 64;  // of a row that a warp adds, two a lane
static_assert(1 << kMostLog2Splits <= 32, "a lane for each part's weight");

template <class Element>
struct alignas(4) Pair {
  Element first, second;
};

struct Sums {
  std::int64_t num_rows;  // of all heads and batches
  std::int32_t q_len;     // rows of a head
  std::int32_t num_heads;
  std::int32_t warps_of_row;
  Rows rows;
};

/// A lane for each part's weight, then for two columns. Few rows are the rule: what a warp reads,
/// it asks for at once.
template <class Element>
__global__ void __launch_bounds__(32 * kWarps)
    add_kernel(const Sums sums, const Parts parts, const Output out, const Lse lse) {
  ptx::griddepcontrol_wait();
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const std::int64_t row = warp / sums.warps_of_row;
  if (row >= sums.num_rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, splits = 1 << parts.log2_splits;
  const int column = static_cast<int>(warp % sums.warps_of_row) * kColumns + 2 * lane;
  const std::int64_t row_of_head = row % sums.q_len;
  const std::int64_t kv_head = row / sums.q_len % sums.num_heads;
  const std::int64_t batch = row / sums.q_len / sums.num_heads;
  const std::int64_t query = sums.rows.query(static_cast<std::int32_t>(row_of_head));
  const std::int64_t head = kv_head * sums.rows.heads + row_of_head - query * sums.rows.heads;

  const std::int64_t from = (batch << parts.log2_splits) + lane;
  const float mine =
      lane < splits
          ? parts.lse.data[from * parts.lse.batch_stride + kv_head * parts.lse.head_stride +
                           row_of_head * parts.lse.row_stride]
          : -INFINITY;
  const float most = warp_max(mine);
  const float weight = mine == -INFINITY ? 0.0f : __expf(mine - most);
  const float sum = warp_sum(weight);
  const float share = sum > 0.0f ? weight / sum : 0.0f;
  if (lse.data != nullptr && column == 0) {
    lse.data[batch * lse.batch_stride + head * lse.head_stride + query * lse.row_stride] =
        sum > 0.0f ? most + logf(sum) : -INFINITY;
  }

  const bool inside = column < out.value_dim;
  const auto* part = static_cast<const Element*>(parts.out.data) +
                     (batch << parts.log2_splits) * parts.out.batch_stride +
                     kv_head * parts.out.head_stride + row_of_head * parts.out.row_stride +
                     (inside ? column : 0);
  float first = 0, second = 0;
#pragma unroll 16
  for (int split = 0; split < splits; ++split) {
    const float factor = __shfl_sync(~0u, share, split);
    const auto pair =
        *reinterpret_cast<const Pair<Element>*>(part + split * parts.out.batch_stride);
    first += factor * static_cast<float>(pair.first);
    second += factor * static_cast<float>(pair.second);
  }
  auto* to = static_cast<Element*>(out.data) + batch * out.batch_stride + head * out.head_stride +
             query * out.row_stride;
  if (inside) to[column] = static_cast<Element>(first);
  if (column + 1 < out.value_dim) to[column + 1] = static_cast<Element>(second);
}

/// Of a part's row: a Pair is read from an even place.
std::int64_t row_stride(const Problem& p) { return ceil_div(p.value_dim, std::int64_t{2}) * 2; }

std::size_t bytes_of_outputs(const Problem& p, int log2_splits) {
  const std::int64_t rows = p.batch * p.num_q_heads * p.q_len << log2_splits;
  return static_cast<std::size_t>(ceil_div(rows * row_stride(p) * 2, std::int64_t{256})) * 256;
}

}  // namespace

std::size_t bytes_of_parts(const Problem& p, int log2_splits) {
  const std::int64_t rows = p.batch * p.num_q_heads * p.q_len << log2_splits;
  return bytes_of_outputs(p, log2_splits) + static_cast<std::size_t>(rows) * sizeof(float);
}

Parts parts_of(const Problem& p, int log2_splits, void* workspace) {
  const std::int64_t of_head = p.q_len * row_stride(p);
  Parts parts;
  parts.out = {workspace,
               p.num_q_heads * of_head,
               of_head,
               row_stride(p),
               static_cast<std::int32_t>(p.value_dim),
               p.value_dim % 8 == 0};
  parts.lse = {
      reinterpret_cast<float*>(static_cast<char*>(workspace) + bytes_of_outputs(p, log2_splits)),
      p.num_q_heads * p.q_len, p.q_len, 1};
  parts.log2_splits = log2_splits;
  return parts;
}

void add_parts(const Problem& p, const Rows& rows, const Parts& parts, const Output& out,
               const Lse& lse, cudaStream_t stream) {
  const Sums sums{p.batch * p.num_q_heads * p.q_len, static_cast<std::int32_t>(p.q_len),
                  static_cast<std::int32_t>(p.num_q_heads),
                  static_cast<std::int32_t>(ceil_div(p.value_dim, std::int64_t{kColumns})), rows};
  const auto kernel = p.dtype == DType::float16 ? add_kernel<__half> : add_kernel<__nv_bfloat16>;
  const auto ctas =
      static_cast<unsigned>(ceil_div(sums.num_rows * sums.warps_of_row, std::int64_t{kWarps}));
  launch_dependent("attention sm90", kernel, ctas, 32 * kWarps, 0, stream, sums, parts, out, lse);
}

}  // namespace sparsek::attn::sm90
