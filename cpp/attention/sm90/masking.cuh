#pragma once

#include <cstdint>
#include <cute/tensor.hpp>

namespace sparsek::attn::sm90 {

// Of a thread's share of a row of kColumns scores, from element `first` of the fragment on: two of
// each 8 columns. The others become -inf.

/// Keeps the columns [begin, end).
template <int kColumns, class Scores>
__device__ __forceinline__ void keep_columns(Scores& scores, int first, int begin, int end) {
  CUTE_UNROLL
  for (int column = 0; column < kColumns; column += 8) {
    CUTE_UNROLL
    for (int c = 0; c < 2; ++c) {
      const bool kept = column + c >= begin && column + c < end;
      if (!kept) scores(first + column / 2 + c) = -INFINITY;
    }
  }
}

/// Keeps the columns whose bit is set, of no more than 32: with both bounds tested for each score
/// instead, registers spill.
template <int kColumns, class Scores>
__device__ __forceinline__ void keep_bits(Scores& scores, int first, std::uint32_t bits) {
  CUTE_UNROLL
  for (int column = 0; column < kColumns; column += 8) {
    CUTE_UNROLL
    for (int c = 0; c < 2; ++c) {
      if (!(bits >> (column + c) & 1)) scores(first + column / 2 + c) = -INFINITY;
    }
  }
}

}  // namespace sparsek::attn::sm90
