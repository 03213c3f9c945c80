#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/sm90/splits.h"
#include "attention/sm90/weighted_sum.cuh"
#include "core/integers.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {
namespace {

struct Sums {
  std::int32_t q_len;  // rows of a head
  std::int32_t num_heads;
  std::int32_t ctas_of_head;
  Rows rows;
};

template <class Element, bool kManyParts>
__global__ void __launch_bounds__(kSumThreads, 3)
    add_kernel(const Sums sums, const Parts parts, const Output out, const Lse lse) {
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t head_of_all = cta / sums.ctas_of_head;
  const std::int32_t row =
      (cta - head_of_all * sums.ctas_of_head) * rows_of_cta(kManyParts) + sum_row<kManyParts>();
  const bool inside = row < sums.q_len;
  const std::int64_t batch = head_of_all / sums.num_heads;
  const std::int64_t kv_head = head_of_all % sums.num_heads;
  const std::int64_t query = sums.rows.query(row);
  const std::int64_t head = kv_head * sums.rows.heads + row - query * sums.rows.heads;
  const std::int64_t part = batch << parts.log2_splits;
  const RowParts<Element> of_row{static_cast<const Element*>(parts.out.data) +
                                     part * parts.out.batch_stride +
                                     kv_head * parts.out.head_stride + row * parts.out.row_stride,
                                 parts.out.batch_stride,
                                 parts.lse.data + part * parts.lse.batch_stride +
                                     kv_head * parts.lse.head_stride + row * parts.lse.row_stride,
                                 parts.lse.batch_stride, inside ? 1 << parts.log2_splits : 0};
  auto* to = static_cast<Element*>(out.data) + batch * out.batch_stride + head * out.head_stride +
             query * out.row_stride;
  float* to_lse = lse.data == nullptr ? nullptr
                                      : lse.data + batch * lse.batch_stride +
                                            head * lse.head_stride + query * lse.row_stride;
  ptx::griddepcontrol_wait();
  const SumOfParts total = sum_of<kManyParts>(of_row, out.value_dim);
  if (inside) store_sum<kManyParts>(total, out, to, to_lse);
}

std::size_t bytes_of_outputs(const Problem& p, int log2_splits) {
  const std::int64_t rows = p.batch * p.num_q_heads * p.q_len << log2_splits;
  return static_cast<std::size_t>(
             ceil_div(rows * row_stride_of_parts(p.value_dim) * 2, std::int64_t{256})) *
         256;
}

}  // namespace

std::size_t bytes_of_parts(const Problem& p, int log2_splits) {
  const std::int64_t rows = p.batch * p.num_q_heads * p.q_len << log2_splits;
  return bytes_of_outputs(p, log2_splits) + static_cast<std::size_t>(rows) * sizeof(float);
}

Parts parts_of(const Problem& p, int log2_splits, void* workspace) {
  const std::int64_t of_head = p.q_len * row_stride_of_parts(p.value_dim);
  Parts parts;
  parts.out = {workspace,
               p.num_q_heads * of_head,
               of_head,
               row_stride_of_parts(p.value_dim),
               static_cast<std::int32_t>(p.value_dim),
               true};
  parts.lse = {
      reinterpret_cast<float*>(static_cast<char*>(workspace) + bytes_of_outputs(p, log2_splits)),
      p.num_q_heads * p.q_len, p.q_len, 1};
  parts.log2_splits = log2_splits;
  return parts;
}

void add_parts(const Problem& p, const Rows& rows, const Parts& parts, const Output& out,
               const Lse& lse, cudaStream_t stream) {
  const bool many =
      has_many_parts(1 << parts.log2_splits, p.batch * p.num_q_heads * p.q_len, p.value_dim);
  const Sums sums{static_cast<std::int32_t>(p.q_len), static_cast<std::int32_t>(p.num_q_heads),
                  static_cast<std::int32_t>(ceil_div(p.q_len, std::int64_t{rows_of_cta(many)})),
                  rows};
  const auto kernel =
      p.dtype == DType::float16
          ? (many ? add_kernel<__half, true> : add_kernel<__half, false>)
          : (many ? add_kernel<__nv_bfloat16, true> : add_kernel<__nv_bfloat16, false>);
  const dim3 ctas(static_cast<unsigned>(p.batch * p.num_q_heads * sums.ctas_of_head),
                  slices_of_sum(p.value_dim));
  launch_dependent("attention sm90: parts", kernel, ctas, kSumThreads, 0, stream, sums, parts, out,
                   lse);
}

}  // namespace sparsek::attn::sm90
