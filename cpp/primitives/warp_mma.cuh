#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstdint>
#include <cute/arch/mma_sm80.hpp>
#include <type_traits>

namespace sparsek {

// What a warp of sm_80 or later has: MMA of 16x8x16, and tiles in shared memory whose 16-byte units
// are swizzled, so that the eight rows of an 8x8 matrix lie in different banks.

/// Where a unit lies in a tile of rows of kRowUnits units (a multiple of 8), in bytes.
template <int kRowUnits>
__device__ __forceinline__ std::uint32_t swizzled(int row, int unit) {
  static_assert(kRowUnits % 8 == 0);
  return static_cast<std::uint32_t>(row * kRowUnits + (unit ^ (row & 7))) * 16;
}

/// The same as a lane's base and constants: kUnit (even) units and `rows` (a multiple of 8) rows
/// further on. The base is that of `unit` 0 or 1.
template <int kRowUnits>
__device__ __forceinline__ std::uint32_t further(std::uint32_t base, int rows, int units) {
  return (base ^ (units % 8 * 16)) + (units / 8 * 8 + rows * kRowUnits) * 16;
}

/// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t address,
                                                         std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

template <class Element>
using WarpMma =
    std::conditional_t<std::is_same_v<Element, cutlass::half_t>, cute::SM80_16x8x16_F32F16F16F32_TN,
                       cute::SM80_16x8x16_F32BF16BF16F32_TN>;

/// Two numbers as one word of a fragment.
template <class Element>
__device__ __forceinline__ std::uint32_t pack(float x, float y) {
  std::uint32_t word;
  if constexpr (std::is_same_v<Element, cutlass::half_t>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
  }
  return word;
}

/// Sums of several fragments.
template <int kRows, int kCols>
__device__ __forceinline__ void zero(float (&c)[kRows][kCols][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] = 0;
    }
  }
}

/// c += a b
template <class Element>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  WarpMma<Element>::fma(c[0], c[1], c[2], c[3], a[0], a[1], a[2], a[3], b0, b1, c[0], c[1], c[2],
                        c[3]);
}

/// Of copy_async (barrier.cuh): those since the last commit become a group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until at most kPending groups of this thread's copies are on their way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
/// Until all of this thread's copies have landed, committed or not.
__device__ __forceinline__ void wait_all_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace sparsek
