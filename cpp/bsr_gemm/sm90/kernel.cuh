#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>

#include "bsr_gemm/sm90/consumer.cuh"
#include "bsr_gemm/sm90/pair_producer.cuh"
#include "bsr_gemm/sm90/producer.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

/// One warp group fills stages, two multiply 64 rows of the tile each. Persistent CTAs, but where
/// both operands are sparse.
template <class C>
__global__ void __launch_bounds__(C::kBoundThreads, C::kCtasPerSm)
    product_kernel(const __grid_constant__ Params p) {
  extern __shared__ unsigned char raw_smem[];
  auto& smem = *reinterpret_cast<SharedStorage<C>*>(
      (reinterpret_cast<std::uintptr_t>(raw_smem) + 1023) / 1024 * 1024);
  if (threadIdx.x == 128 * kConsumerGroups) {  // the first copies wait for the descriptors
    if constexpr (C::kSparseByTma) cute::prefetch_tma_descriptor(&p.sparse_map);
    cute::prefetch_tma_descriptor(&p.dense_map);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      cutlass::arch::ClusterBarrier::init(&smem.full[i], 1 + (C::kSparseByTma ? 0 : 128));
      cutlass::arch::ClusterBarrier::init(&smem.empty[i], 4 * kConsumerGroups);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if constexpr (C::kEarlyStart) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }

  const int group = threadIdx.x / 128;
  if (group == kConsumerGroups) {
    if constexpr (C::kBothSparse) {
      PairProducer<C>(p, smem).run();
    } else {
      cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
      Producer<C>(p, smem).run();
    }
  } else {
    if constexpr (!C::kBothSparse) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    Consumer<C>::run(p, smem, group);
  }
}

template <class C>
constexpr int smem_bytes() {
  return sizeof(SharedStorage<C>) + 1024;
}

}  // namespace sparsek::bsr::sm90
