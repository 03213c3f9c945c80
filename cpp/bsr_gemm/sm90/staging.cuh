#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

namespace sparsek::bsr::sm90 {

__device__ inline float2 unpack(cutlass::half_t, std::uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}
__device__ inline float2 unpack(cutlass::bfloat16_t, std::uint32_t pair) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
}

constexpr int kStagingBytes = 16384;  // of one warp group

/// Else the compiler computes what all rounds need before the first, in registers that it does not
/// have.
template <class T>
__device__ T opaque(T value) {
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("" : "+f"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
  return value;
}

/// The row that a warp group's row holds where blocks are folded (Params::folded), which takes it
/// back too.
__device__ constexpr int in_folded_order(int row) { return row ^ (row >> 3 & 1); }

}  // namespace sparsek::bsr::sm90
