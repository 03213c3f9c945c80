#pragma once

#include <cutlass/arch/barrier.h>

#include "bsr_gemm/sm90/layouts.cuh"
#include "primitives/reduce.cuh"
#include "primitives/shared_access.cuh"

namespace sparsek::bsr::sm90 {

/// Which warp group of the CTA this is: the consumers come first.
__device__ inline int warp_group() { return static_cast<int>(uniform(threadIdx.x / 128)); }

/// What a kernel begins with: where its storage lies, and its stages' barriers. `sparse_map` is
/// that of the rows' operand, `dense_map` of the columns'.
template <class C, class Storage = SharedStorage<C>>
__device__ __forceinline__ Storage& begin(unsigned char* raw_smem, const CUtensorMap& sparse_map,
                                          const CUtensorMap& dense_map) {
  auto& smem = *reinterpret_cast<Storage*>(align_shared(raw_smem));
  if (threadIdx.x == 128 * kConsumerGroups) {  // the first copies wait for the descriptors
    if constexpr (C::kSparseByTma) cute::prefetch_tma_descriptor(&sparse_map);
    cute::prefetch_tma_descriptor(&dense_map);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      cutlass::arch::ClusterBarrier::init(&smem.full[i], C::kArrivals);
      cutlass::arch::ClusterBarrier::init(&smem.empty[i], 4 * kConsumerGroups);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  return smem;
}

template <class C, class Storage = SharedStorage<C>>
constexpr int smem_bytes() {
  return sizeof(Storage) + 1024;
}

}  // namespace sparsek::bsr::sm90
