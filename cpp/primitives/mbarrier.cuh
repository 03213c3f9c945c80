#pragma once

#include <cutlass/arch/barrier.h>

#include "primitives/barrier.cuh"

namespace sparsek {

/// Where a ring of stages stands: the stage, and the parity of its barriers' current phase. One
/// register holds both: the number of steps, modulo twice the ring where that is not for free.
template <int kStages>
class RingState {
 public:
  RingState() = default;
  /// The same step of a ring with fewer stages.
  template <int kMoreStages>
  __device__ RingState(const RingState<kMoreStages>& other) : step_(other.step_) {
    static_assert(kPowerOfTwo && RingState<kMoreStages>::kPowerOfTwo && kStages < kMoreStages);
  }

  __device__ int stage() const {
    if constexpr (kPowerOfTwo) return static_cast<int>(step_ % kStages);
    return static_cast<int>(step_ < kStages ? step_ : step_ - kStages);
  }
  __device__ std::uint32_t phase() const {
    if constexpr (kPowerOfTwo) return step_ / kStages % 2;
    return step_ >= kStages;
  }
  /// The stage of a ring twice as long.
  __device__ int stage_of_two() const {
    if constexpr (kPowerOfTwo) return static_cast<int>(step_ % (2 * kStages));
    return static_cast<int>(step_);
  }
  __device__ void advance() {
    ++step_;
    if (!kPowerOfTwo && step_ == 2 * kStages) step_ = 0;
  }

 private:
  template <int>
  friend class RingState;

  static constexpr bool kPowerOfTwo = (kStages & (kStages - 1)) == 0;

  std::uint32_t step_ = 0;
};

/// Full and empty barriers of one ring of shared-memory stages. A producer starts one phase ahead:
/// its first wait on an empty stage returns at once.
template <int kStages>
struct Ring {
  std::uint64_t full[kStages];
  std::uint64_t empty[kStages];

  __device__ void init(int producers, int consumers) {
    for (int stage = 0; stage < kStages; ++stage) {
      cutlass::arch::ClusterBarrier::init(&full[stage], producers);
      cutlass::arch::ClusterBarrier::init(&empty[stage], consumers);
    }
  }
  __device__ void wait_empty(const RingState<kStages>& state) const {
    wait(&empty[state.stage()], state.phase() ^ 1);
  }
  __device__ void wait_full(const RingState<kStages>& state) const {
    wait(&full[state.stage()], state.phase());
  }
  __device__ bool is_full(const RingState<kStages>& state) const {
    return try_wait(&full[state.stage()], state.phase());
  }
  __device__ void expect(const RingState<kStages>& state, std::uint32_t bytes) {
    sparsek::expect(&full[state.stage()], bytes);
  }
  __device__ void arrive_full(const RingState<kStages>& state) { arrive(&full[state.stage()]); }
  __device__ void arrive_expecting(const RingState<kStages>& state, std::uint32_t bytes) {
    sparsek::arrive_expecting(&full[state.stage()], bytes);
  }
  __device__ void arrive_empty(const RingState<kStages>& state) { arrive(&empty[state.stage()]); }
};

}  // namespace sparsek
