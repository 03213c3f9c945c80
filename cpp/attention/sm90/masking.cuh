#pragma once

#include <cute/tensor.hpp>

namespace sparsek::attn::sm90 {

/// Of a thread's share of a row of kColumns scores, from element `first` of the fragment on (two of
/// each 8 columns), makes those -inf whose column is not kept.
template <int kColumns, class Scores, class Keeps>
__device__ __forceinline__ void erase_unless(Scores& scores, int first, const Keeps& keeps) {
  CUTE_UNROLL
  for (int column = 0; column < kColumns; column += 8) {
    CUTE_UNROLL
    for (int c = 0; c < 2; ++c) {
      if (!keeps(column + c)) scores(first + column / 2 + c) = -INFINITY;
    }
  }
}

}  // namespace sparsek::attn::sm90
