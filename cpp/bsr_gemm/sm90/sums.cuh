#pragma once

#include <cute/tensor.hpp>
#include <utility>

namespace sparsek::bsr::sm90 {

/// A thread's sums of a tile, counted in fours.
template <class Acc>
constexpr int kFours = decltype(cute::size(std::declval<Acc>()))::value / 4;

/// Adds what `load` has of each four.
template <class Acc, class Load>
__device__ void add_sums(Acc& acc, Load load) {
#pragma unroll
  for (int i = 0; i < kFours<Acc>; ++i) {
    const float4 sum = load(i);
    acc(4 * i) += sum.x;
    acc(4 * i + 1) += sum.y;
    acc(4 * i + 2) += sum.z;
    acc(4 * i + 3) += sum.w;
  }
}

}  // namespace sparsek::bsr::sm90
