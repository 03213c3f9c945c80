#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/sm90/tma_store.cuh"
#include "attention/store_row.cuh"

namespace sparsek::attn::sm90 {

/// Which of two pointers is not known; that both are to global memory is.
template <class T>
__device__ __forceinline__ T* global(T* pointer) {
  return static_cast<T*>(__cvta_global_to_generic(__cvta_generic_to_global(pointer)));
}

/// Both rows of a thread, as they are numbered.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store_tile(const Params& params, const Work& work, int tile_row,
                                           const Accumulator& output, const RowSoftmax& softmax) {
  const std::int32_t query = work.q_begin + tile_row;
  const bool inside[2] = {query < params.q_len, query + 8 < params.q_len};
  const std::int32_t columns[2] = {inside[0] ? params.out.value_dim : 0,
                                   inside[1] ? params.out.value_dim : 0};
  const float factor[2] = {softmax.inverse_sum(0), softmax.inverse_sum(1)};
  auto* const out = row_of<Element>(params.out, work.batch, work.head, query);
  auto* const second = out + 8 * params.out.row_stride;
  if (params.out.vectors) {
    store_row<Element, C::kValueDim, 0>(output, factor[0], out, columns[0]);
    store_row<Element, C::kValueDim, 1>(output, factor[1], second, columns[1]);
  } else {
    store_row_by_element<Element, C::kValueDim, 0>(output, factor[0], out, columns[0]);
    store_row_by_element<Element, C::kValueDim, 1>(output, factor[1], second, columns[1]);
  }
}

__device__ __forceinline__ void store_lse(const Params& params, const Work& work, int tile_row,
                                          const RowSoftmax& softmax) {
  if (params.lse.data == nullptr || threadIdx.x % 4 != 0) return;
  const std::int32_t query = work.q_begin + tile_row;
  auto* const lse = row_of<float>(params.lse, work.batch, work.head, query);
  if (query < params.q_len) *lse = softmax.lse(0);
  if (query + 8 < params.q_len) lse[8 * params.lse.row_stride] = softmax.lse(1);
}

/// The same of a part of the tile's keys, to the workspace.
template <class C, class Accumulator>
__device__ __forceinline__ void store_part(const Params& params, const Work& work, int tile_row,
                                           const Accumulator& output, const RowSoftmax& softmax) {
  const SharedParts& parts = params.shared;
  const std::int32_t end = min(params.q_len - work.q_begin, parts.rows);
  auto* const out = row_of<float>(parts.out, work.part, 0, tile_row);
  auto* const lse = row_of<float>(parts.lse, work.part, 0, tile_row);
  const bool inside[2] = {tile_row < end, tile_row + 8 < end};
  store_float_row<C::kValueDim, 0>(output, softmax.inverse_sum(0), out,
                                   inside[0] ? parts.out.value_dim : 0);
  store_float_row<C::kValueDim, 1>(output, softmax.inverse_sum(1), out + 8 * parts.out.row_stride,
                                   inside[1] ? parts.out.value_dim : 0);
  if (threadIdx.x % 4 == 0) {
    if (inside[0]) *lse = softmax.lse(0);
    if (inside[1]) lse[8 * parts.lse.row_stride] = softmax.lse(1);
  }
}

/// Where a row of packed heads goes: as that of `work`, if it is before row `end`.
struct Destination {
  Output out;
  Lse lse;
  Work work;
  std::int32_t end;
};

/// Row `tile_row` of packed heads: as one of its head's queries, or of a part.
__device__ __forceinline__ Destination unpacked(const Params& params, Work work, int tile_row) {
  const std::int32_t row = work.q_begin + tile_row, query = params.rows.query(row);
  const bool inside = tile_row < params.rows.of_tile && row < params.q_len;
  Destination to{params.out, params.lse, work, inside ? query + 1 : query};
  to.work.head = work.head * params.rows.heads.value() + row % params.rows.heads;
  to.work.q_begin = query - tile_row;
  if (work.part >= 0) {
    to = {params.shared.out,
          params.shared.lse,
          {work.state, 0, 0, work.part, -1},
          min(params.q_len - work.q_begin, params.shared.rows)};
  }
  to.out.data = global(to.out.data);
  to.lse.data = global(to.lse.data);
  return to;
}

/// Divides by the rows' sums and writes O and lse.
///   tile  where O can go on its way, if kStoresByTma
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax,
                                      Element* tile) {
  if constexpr (C::kPacks) {
    Destination to = unpacked(params, work, tile_row);
    write_row<Element, C::kValueDim, 0, true>(to.out, to.lse, to.work, tile_row, to.end, output,
                                              softmax);
    to = unpacked(params, work, tile_row + 8);
    write_row<Element, C::kValueDim, 1, true>(to.out, to.lse, to.work, tile_row, to.end, output,
                                              softmax);
  } else if (C::kShares && work.part >= 0) {
    store_part<C>(params, work, tile_row, output, softmax);
  } else {
    if (C::kStoresByTma && params.out.vectors) {
      store_tile_by_tma<Element, C>(params, work, tile_row, output, softmax, tile);
    } else {
      store_tile<Element, C>(params, work, tile_row, output, softmax);
    }
    store_lse(params, work, tile_row, softmax);
  }
}

}  // namespace sparsek::attn::sm90
