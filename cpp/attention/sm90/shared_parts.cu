#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/sm90/shared_parts.h"
#include "attention/sm90/weighted_sum.cuh"
#include "core/integers.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {
namespace {

struct Sums {
  Rows rows;
  std::int32_t num_rows;  // of a head
  Divisor ctas_of_tile;
};

template <class Element, bool kManyParts>
__global__ void __launch_bounds__(kSumThreads, 3)
    add_shared_kernel(const Sums sums, const Schedule schedule, const SharedParts parts,
                      const Output out, const Lse lse) {
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t tile = cta / sums.ctas_of_tile;
  const std::int32_t tile_row =
      cta % sums.ctas_of_tile * rows_of_cta(kManyParts) + sum_row<kManyParts>();
  const Shares& shares = schedule.shares;
  const QTile at = tile_at(schedule, schedule.num_tiles - shares.tiles + tile);
  const std::int32_t row = at.q_tile * sums.rows.of_tile + tile_row;
  const bool inside = tile_row < parts.rows && row < sums.num_rows;
  const std::int32_t query = sums.rows.query(row);
  const std::int32_t head = at.head * sums.rows.heads.value() + row % sums.rows.heads;
  const std::int64_t part = std::int64_t{tile} * shares.parts.value();
  const RowParts of_row{row_of<const float>(parts.out, part, 0, tile_row), parts.out.batch_stride,
                        row_of<const float>(parts.lse, part, 0, tile_row), parts.lse.batch_stride,
                        inside ? shares.parts.value() : 0};
  auto* to = row_of<Element>(out, at.batch, head, query);
  float* to_lse = lse.data == nullptr ? nullptr : row_of<float>(lse, at.batch, head, query);
  ptx::griddepcontrol_wait();
  const bool whole = schedule.progress != nullptr && schedule.progress->in_use != 0;
  const SumOfParts total = sum_of<kManyParts>(of_row, out.value_dim);
  if (inside && !whole) store_sum<kManyParts>(total, out, to, to_lse);
}

template <class Element>
auto kernel_for(bool many_parts) {
  return many_parts ? add_shared_kernel<Element, true> : add_shared_kernel<Element, false>;
}

/// Of all parts.
std::int64_t num_rows(const Shares& shares, const Rows& rows) {
  return std::int64_t{num_parts(shares)} * rows.of_tile;
}

std::size_t bytes_of_outputs(const Problem& p, const Shares& shares, const Rows& rows) {
  const std::int64_t bytes = num_rows(shares, rows) * row_stride_of_parts(p.value_dim) * 4;
  return static_cast<std::size_t>(ceil_div(bytes, std::int64_t{256})) * 256;
}

}  // namespace

std::size_t bytes_of_shared_parts(const Problem& p, const Shares& shares, const Rows& rows) {
  return bytes_of_outputs(p, shares, rows) +
         static_cast<std::size_t>(num_rows(shares, rows)) * sizeof(float);
}

SharedParts shared_parts(const Problem& p, const Shares& shares, const Rows& rows,
                         void* workspace) {
  const std::int64_t row_stride = row_stride_of_parts(p.value_dim);
  SharedParts parts;
  parts.rows = rows.of_tile;
  parts.out = {workspace,
               rows.of_tile * row_stride,
               0,
               row_stride,
               static_cast<std::int32_t>(p.value_dim),
               true,
               true};
  auto* lse = static_cast<char*>(workspace) + bytes_of_outputs(p, shares, rows);
  parts.lse = {reinterpret_cast<float*>(lse), rows.of_tile, 0, 1};
  return parts;
}

void add_shared_parts(const Problem& p, const Schedule& schedule, const Rows& rows,
                      const SharedParts& parts, const Output& out, const Lse& lse,
                      cudaStream_t stream) {
  const Shares& shares = schedule.shares;
  const bool many =
      has_many_parts(shares.parts.value(), std::int64_t{shares.tiles} * parts.rows, p.value_dim);
  const Sums sums{rows, static_cast<std::int32_t>(p.q_len),
                  ceil_div(parts.rows, rows_of_cta(many))};
  const auto kernel =
      p.dtype == DType::float16 ? kernel_for<__half>(many) : kernel_for<__nv_bfloat16>(many);
  const dim3 ctas(static_cast<unsigned>(shares.tiles * sums.ctas_of_tile.value()),
                  slices_of_sum(p.value_dim));
  launch_dependent("attention sm90: shared tiles", kernel, ctas, kSumThreads, 0, stream, sums,
                   schedule, parts, out, lse);
}

}  // namespace sparsek::attn::sm90
