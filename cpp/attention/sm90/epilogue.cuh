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
  const std::int64_t query = work.q_begin + tile_row;
  write_row<Element, C::kValueDim, 0>(params.out, params.lse, work.batch, work.head, query,
                                      query < params.q_len, output, softmax.inverse_sum(0),
                                      softmax.lse(0));
  write_row<Element, C::kValueDim, 1>(params.out, params.lse, work.batch, work.head, query + 8,
                                      query + 8 < params.q_len, output, softmax.inverse_sum(1),
                                      softmax.lse(1));
}

}  // namespace sparsek::attn::sm90
