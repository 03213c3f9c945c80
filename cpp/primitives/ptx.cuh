#pragma once

#include <cstdint>

namespace sparsek::ptx {

/// Waits until the grids that this one depends on have finished and their writes are visible
/// (programmatic dependent launch, sm_90). Without such a dependency it returns at once.
__device__ inline void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next grid in the stream start its prologue.
__device__ inline void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;");
}

/// What was written before it is seen by whoever reads the value with load_acquire.
__device__ inline void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// What others change meanwhile.
__device__ inline std::uint32_t load_relaxed(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Has L2 read the line that the address is in.
__device__ inline void prefetch_to_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

/// 2^x, with results below the smallest normal number flushed to zero.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, of a normal x, to one unit in the last place.
__device__ inline float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 16 bytes to global memory, if wanted: a predicate, not a branch.
__device__ inline void store_if(bool wanted, void* to, const std::uint32_t (&word)[4]) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %5, 0;\n"
      "@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
      "}\n" ::"l"(__cvta_generic_to_global(to)),
      "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Four 8x8 matrices of 16-bit elements to shared memory, of which a lane holds a word each: in row
/// lane / 4 the elements 2 * (lane % 4) and the next, or in that column. Lane l gives the address
/// of row l % 8 of matrix l / 8.
template <bool kTransposed = false>
__device__ void store_matrices(std::uint32_t to, const std::uint32_t (&word)[4]) {
  if constexpr (kTransposed) {
    asm volatile("stmatrix.sync.aligned.x4.trans.m8n8.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.x4.m8n8.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
  }
}

}  // namespace sparsek::ptx
