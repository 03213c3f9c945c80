#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/store_row.cuh"

namespace sparsek::attn::sm90 {

/// Of the tile's that are any query's.
template <class C>
__device__ __forceinline__ std::int32_t end_of_rows(const Params& params, const Work& work) {
  return C::kSplits ? min(params.q_len, work.q_begin + params.rows.of_tile) : params.q_len;
}

/// Divides by the rows' sums and writes O and lse.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax) {
  write_row<Element, C::kValueDim, 0>(params.out, params.lse, work, tile_row,
                                      end_of_rows<C>(params, work), output, softmax);
  write_row<Element, C::kValueDim, 1>(params.out, params.lse, work, tile_row,
                                      end_of_rows<C>(params, work), output, softmax);
}

}  // namespace sparsek::attn::sm90
