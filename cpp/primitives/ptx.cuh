#pragma once

namespace sparsek::ptx {

/// Waits until the grids that this one depends on have finished and their writes are visible
/// (programmatic dependent launch, sm_90). Without such a dependency it returns at once.
__device__ inline void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next grid in the stream start its prologue.
__device__ inline void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;");
}

/// 2^x, with results below the smallest normal number flushed to zero.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sparsek::ptx
