#pragma once

#include <cstdint>

#include "primitives/barrier.cuh"

// Shared memory by its own addresses (shared_address in barrier.cuh). Behind a pointer of which it
// does not know where it points, the compiler waits for each access that a store to global memory
// comes before or after.

namespace sparsek {

/// The first byte that is aligned as TMA's swizzles ask for. Cast back from a number, the compiler
/// would not know it to be shared memory.
__device__ inline unsigned char* align_shared(unsigned char* raw) {
  return raw + (0u - shared_address(raw)) % 1024;
}

__device__ inline uint4 load_shared_four(std::uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from));
  return v;
}
__device__ inline float2 load_shared_two(std::uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
  return v;
}
__device__ inline float load_shared(std::uint32_t from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
  return v;
}

__device__ inline void store_shared(std::uint32_t to, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}
__device__ inline void store_shared(std::uint32_t to, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

}  // namespace sparsek
