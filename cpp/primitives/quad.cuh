#pragma once

#include <cstdint>

namespace sparsek {

/// Transposes four words over the four lanes of a quad: lane i's word j becomes lane j's word i.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&word)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int low = 0; low < 4; ++low) {
      if (low & bit) continue;
      const std::uint32_t sent = upper ? word[low] : word[low + bit];
      const std::uint32_t received = __shfl_xor_sync(~0u, sent, bit);
      if (upper) {
        word[low] = received;
      } else {
        word[low + bit] = received;
      }
    }
  }
}

/// Of the lanes of a quad, in each of them.
__device__ __forceinline__ float max_of_quad(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float sum_of_quad(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

}  // namespace sparsek
