#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/store_row.cuh"

namespace sparsek::attn::sm90 {

/// Where a row of a tile goes: as that of `work`, if it is before row `end`.
struct Destination {
  Output out;
  Lse lse;
  Work work;
  std::int32_t end;
};

/// Which of two pointers is not known; that both are to global memory is.
template <class T>
__device__ __forceinline__ T* global(T* pointer) {
  return static_cast<T*>(__cvta_global_to_generic(__cvta_generic_to_global(pointer)));
}

/// Row `tile_row` of packed heads: as one of its head's queries.
__device__ __forceinline__ Destination unpacked(const Params& params, Work work, int tile_row) {
  const std::int32_t row = work.q_begin + tile_row, query = params.rows.query(row);
  const bool inside = tile_row < params.rows.of_tile && row < params.q_len;
  work.head = work.head * params.rows.heads.value() + row % params.rows.heads;
  work.q_begin = query - tile_row;
  return {params.out, params.lse, work, inside ? query + 1 : query};
}

template <class C>
__device__ __forceinline__ Destination destination_of(const Params& params, const Work& work,
                                                      int tile_row) {
  Destination to{params.out, params.lse, work, params.q_len};
  if constexpr (C::kPacks) to = unpacked(params, work, tile_row);
  if (C::kShares && work.part >= 0) {
    to = {params.shared.out,
          params.shared.lse,
          {work.state, 0, 0, work.part, -1},
          min(params.q_len - work.q_begin, params.shared.rows)};
  }
  if constexpr (C::kShares) {
    to.out.data = global(to.out.data);
    to.lse.data = global(to.lse.data);
  }
  return to;
}

/// Divides by the rows' sums and writes O and lse.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax) {
  Destination to = destination_of<C>(params, work, tile_row);
  write_row<Element, C::kValueDim, 0, C::kShares>(to.out, to.lse, to.work, tile_row, to.end, output,
                                                  softmax);
  if constexpr (C::kPacks) to = destination_of<C>(params, work, tile_row + 8);
  write_row<Element, C::kValueDim, 1, C::kShares>(to.out, to.lse, to.work, tile_row, to.end, output,
                                                  softmax);
}

}  // namespace sparsek::attn::sm90
