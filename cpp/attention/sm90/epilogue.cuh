#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/store_row.cuh"

namespace sparsek::attn::sm90 {

/// Where the rows of a tile go: as those of `work`, up to row `end`.
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

template <class C>
__device__ __forceinline__ Destination destination_of(const Params& params, const Work& work) {
  Destination to{params.out, params.lse, work,
                 C::kSplits ? min(params.q_len, work.q_begin + params.rows.of_tile) : params.q_len};
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

/// A row of packed heads, where it is the output's own rows that are written: as one of its head's
/// queries.
__device__ __forceinline__ Destination unpacked(const Params& params, Destination to,
                                                int tile_row) {
  if (!params.unpacks) return to;
  const std::int32_t row = to.work.q_begin + tile_row, query = params.rows.query(row);
  to.end = row < to.end ? query + 1 : query;
  to.work.q_begin = query - tile_row;
  to.work.head = to.work.head * params.rows.heads + row - query * params.rows.heads;
  return to;
}

/// Divides by the rows' sums and writes O and lse.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax) {
  const Destination to = destination_of<C>(params, work);
  if constexpr (C::kSplits) {
    const Destination first = unpacked(params, to, tile_row);
    write_row<Element, C::kValueDim, 0>(to.out, to.lse, first.work, tile_row, first.end, output,
                                        softmax);
    const Destination second = unpacked(params, to, tile_row + 8);
    write_row<Element, C::kValueDim, 1>(to.out, to.lse, second.work, tile_row, second.end, output,
                                        softmax);
    return;
  }
  write_row<Element, C::kValueDim, 0>(to.out, to.lse, to.work, tile_row, to.end, output, softmax);
  write_row<Element, C::kValueDim, 1>(to.out, to.lse, to.work, tile_row, to.end, output, softmax);
}

}  // namespace sparsek::attn::sm90
