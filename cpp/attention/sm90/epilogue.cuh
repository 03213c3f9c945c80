#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/store_row.cuh"

namespace sparsek::attn::sm90 {

/// Divides by the rows' sums and writes O and lse.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax) {
  write_row<Element, C::kValueDim, 0>(params.out, params.lse, work, tile_row, params.q_len, output,
                                      softmax);
  write_row<Element, C::kValueDim, 1>(params.out, params.lse, work, tile_row, params.q_len, output,
                                      softmax);
}

}  // namespace sparsek::attn::sm90
