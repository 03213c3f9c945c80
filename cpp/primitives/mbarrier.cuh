#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/arch/copy_sm90_desc.hpp>

namespace sparsek {

/// Where a ring of stages stands: the stage, and the parity of its barriers' current phase.
template <int kStages>
struct RingState {
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
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
  __device__ void wait_empty(const RingState<kStages>& state) {
    cutlass::arch::ClusterBarrier::wait(&empty[state.stage], state.phase ^ 1);
  }
  __device__ void wait_full(const RingState<kStages>& state) {
    cutlass::arch::ClusterBarrier::wait(&full[state.stage], state.phase);
  }
  __device__ void expect_bytes(const RingState<kStages>& state, std::uint32_t bytes) {
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&full[state.stage], bytes);
  }
  __device__ void arrive_full(const RingState<kStages>& state) {
    cutlass::arch::ClusterBarrier::arrive(&full[state.stage]);
  }
  __device__ void arrive_empty(const RingState<kStages>& state) {
    cutlass::arch::ClusterBarrier::arrive(&empty[state.stage]);
  }
};

}  // namespace sparsek
