#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "attention/sm90/shared_parts.h"
#include "attention/sm90/weighted_sum.cuh"
#include "core/integers.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {
namespace {

struct Sums {
  std::int32_t q_len;
  std::int32_t tile_q;
  std::int32_t ctas_of_tile;
};

template <class Element, bool kManyParts>
__global__ void __launch_bounds__(kSumThreads, 3)
    add_shared_kernel(const Sums sums, const Schedule schedule, const SharedParts parts,
                      const Output out, const Lse lse) {
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t tile = cta / sums.ctas_of_tile;
  const std::int32_t row =
      (cta - tile * sums.ctas_of_tile) * rows_of_cta(kManyParts) + sum_row<kManyParts>();
  const Shares& shares = schedule.shares;
  const QTile at = tile_at(schedule, schedule.num_tiles - shares.tiles + tile);
  const std::int64_t query = std::int64_t{at.q_tile} * sums.tile_q + row;
  const bool inside = row < parts.rows && query < sums.q_len;
  const std::int64_t part = std::int64_t{tile} * shares.parts;
  const RowParts<Element> of_row{
      static_cast<const Element*>(parts.out.data) + part * parts.out.batch_stride +
          row * parts.out.row_stride,
      parts.out.batch_stride,
      parts.lse.data + part * parts.lse.batch_stride + row * parts.lse.row_stride,
      parts.lse.batch_stride, inside ? shares.parts : 0};
  auto* to = static_cast<Element*>(out.data) + at.batch * out.batch_stride +
             at.head * out.head_stride + query * out.row_stride;
  float* to_lse = lse.data == nullptr ? nullptr
                                      : lse.data + at.batch * lse.batch_stride +
                                            at.head * lse.head_stride + query * lse.row_stride;
  ptx::griddepcontrol_wait();
  const bool whole = schedule.progress != nullptr && schedule.progress->in_use != 0;
  const SumOfParts total = sum_of<kManyParts>(of_row, out.value_dim);
  if (inside && !whole) store_sum<kManyParts>(total, out, to, to_lse);
}

std::int64_t rows_of_part(const Problem& p, int tile_q) {
  return std::min<std::int64_t>(p.q_len, tile_q);
}

std::size_t bytes_of_outputs(const Problem& p, const Shares& shares, int tile_q) {
  const std::int64_t rows = std::int64_t{num_parts(shares)} * rows_of_part(p, tile_q);
  const std::int64_t bytes = rows * row_stride_of_parts(p.value_dim) * 2;
  return static_cast<std::size_t>(ceil_div(bytes, std::int64_t{256})) * 256;
}

}  // namespace

std::size_t bytes_of_shared_parts(const Problem& p, const Shares& shares, int tile_q) {
  const std::int64_t rows = std::int64_t{num_parts(shares)} * rows_of_part(p, tile_q);
  return bytes_of_outputs(p, shares, tile_q) + static_cast<std::size_t>(rows) * sizeof(float);
}

SharedParts shared_parts(const Problem& p, const Shares& shares, int tile_q, void* workspace) {
  const std::int64_t rows = rows_of_part(p, tile_q), row_stride = row_stride_of_parts(p.value_dim);
  SharedParts parts;
  parts.out = {workspace, rows * row_stride, 0, row_stride, static_cast<std::int32_t>(p.value_dim),
               true};
  auto* lse = static_cast<char*>(workspace) + bytes_of_outputs(p, shares, tile_q);
  parts.lse = {reinterpret_cast<float*>(lse), rows, 0, 1};
  parts.rows = static_cast<std::int32_t>(rows);
  return parts;
}

void add_shared_parts(const Problem& p, const Schedule& schedule, int tile_q,
                      const SharedParts& parts, const Output& out, const Lse& lse,
                      cudaStream_t stream) {
  const Shares& shares = schedule.shares;
  const bool many =
      has_many_parts(shares.parts, std::int64_t{shares.tiles} * parts.rows, p.value_dim);
  const Sums sums{static_cast<std::int32_t>(p.q_len), tile_q,
                  static_cast<std::int32_t>(ceil_div(parts.rows, rows_of_cta(many)))};
  const auto kernel =
      p.dtype == DType::float16
          ? (many ? add_shared_kernel<__half, true> : add_shared_kernel<__half, false>)
          : (many ? add_shared_kernel<__nv_bfloat16, true>
                  : add_shared_kernel<__nv_bfloat16, false>);
  const dim3 ctas(static_cast<unsigned>(shares.tiles * sums.ctas_of_tile),
                  slices_of_sum(p.value_dim));
  launch_dependent("attention sm90: shared tiles", kernel, ctas, kSumThreads, 0, stream, sums,
                   schedule, parts, out, lse);
}

}  // namespace sparsek::attn::sm90
