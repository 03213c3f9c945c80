#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/arch/mma_sm90_gmma.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "primitives/barrier.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// How a warp group of consumers walks the stages, and gives those back that nothing reads any
/// more. All its warps execute the same waits for WGMMA, as they must: whether the next stage is
/// there, each may see at another time.
template <class C, class Storage = SharedStorage<C>>
class StageReader {
 public:
  __device__ explicit StageReader(Storage& smem, int stages = C::kStages)
      : smem_(smem), stages_(stages) {}

  __device__ int stage() const { return stage_; }

  __device__ void wait_full() {
    wait(&smem_.full[stage_], phase_);
    if constexpr (!C::kSparseByTma) cutlass::arch::fence_view_async_shared();
  }

  /// Which slices of the stage have blocks. Read by the lane that gives the stage back: racecheck
  /// would not know that the others have read it by then.
  __device__ std::uint32_t mask() const {
    return uniform(threadIdx.x % 32 == 0 ? smem_.masks[stage_] : 0);
  }

  /// To the next stage. The MMAs of this one have begun, or there are none.
  __device__ void advance(bool none) {
    if (none) {
      finish();
      release(stage_);
    } else {
      cute::warpgroup_wait<1>();
      if (reading_ >= 0) release(reading_);
      reading_ = stage_;
    }
    if (++stage_ == stages_) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  /// Waits for all MMAs.
  __device__ void finish() {
    cute::warpgroup_wait<0>();
    if (reading_ >= 0) release(reading_);
    reading_ = -1;
  }

 private:
  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) arrive(&smem_.empty[stage]);
  }

  Storage& smem_;
  const int stages_;
  int stage_ = 0;
  std::uint32_t phase_ = 0;
  int reading_ = -1;  // the stage that the MMAs in flight read
};

}  // namespace sparsek::bsr::sm90
