#pragma once

#include <cutlass/arch/barrier.h>

#include "bsr_gemm/sm90/begin.cuh"
#include "bsr_gemm/sm90/few_consumer.cuh"
#include "bsr_gemm/sm90/few_producer.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

/// Clusters of two CTAs, one on an SM: a warp group for each C::kGroupCols columns, or two that
/// take turns, and behind them C::kProducers warps that load.
template <class C>
__global__ void __launch_bounds__(C::threads(C::kMostGroups), 1)
    few_kernel(const __grid_constant__ FewParams p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char raw_smem[];
  const int workers = static_cast<int>(blockDim.x - 32 * C::kProducers) / 128;
  const int groups = C::kTakesTurns && p.turns == 2 ? 1 : workers, worker = warp_group();
  const FewStorage<C> smem(raw_smem, groups, p);
  if (threadIdx.x == 128 * workers) {
    if (!C::kCopied) cute::prefetch_tma_descriptor(&p.sparse_map);
    cute::prefetch_tma_descriptor(&p.dense_map);
  }
  typename FewProducer<C>::Start start{};
  if (worker == workers) {
    ptx::griddepcontrol_wait();
    start = FewProducer<C>::start(p);
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < C::kMostStages; ++i) {
      cutlass::arch::ClusterBarrier::init(smem.full(i), C::kArrivals);
      cutlass::arch::ClusterBarrier::init(smem.empty(i), 4 * groups);
    }
#pragma unroll
    for (int i = 0; i < C::kMostGroups; ++i) {
      cutlass::arch::ClusterBarrier::init(smem.sums_full(i), 1);
    }
    if constexpr (C::kTakesTurns) {
      for (int i = 0; i < 2; ++i) cutlass::arch::ClusterBarrier::init(smem.handed_over(i), 128);
    }
    cutlass::arch::fence_barrier_init();
#pragma unroll
    for (int i = 0; i < C::kMostGroups; ++i) {
      arrive_expecting(smem.sums_full(i), C::kBytesOfSums);
    }
  }
  __syncthreads();
  // The other CTA may send once all have arrived. All wait, though few will send: a barrier at
  // which some only arrive hangs under compute-sanitizer's racecheck.
  cute::cluster_arrive_relaxed();
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (worker == workers) {
    FewProducer<C>(p, smem, start).run();
  } else {
    FewConsumer<C>(p, smem, worker).run();
  }
#endif
}

}  // namespace sparsek::bsr::sm90
