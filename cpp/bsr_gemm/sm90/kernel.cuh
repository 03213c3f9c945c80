#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <type_traits>

#include "bsr_gemm/sm90/begin.cuh"
#include "bsr_gemm/sm90/consumer.cuh"
#include "bsr_gemm/sm90/copying_producer.cuh"
#include "bsr_gemm/sm90/pair_producer.cuh"
#include "bsr_gemm/sm90/producer.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

template <class C, class Walk>
__device__ __forceinline__ void run_roles(const Params& p, SharedStorage<C>& smem) {
  const int group = warp_group();
  if (group == kConsumerGroups) {
    if constexpr (C::kBothSparse) {
      PairProducer<C, false>(p, smem).run();
    } else {
      cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
      using Filler = std::conditional_t<C::kSparseByTma, Producer<C>, CopyingProducer<C>>;
      Filler(p, smem).template run<Walk>();
    }
  } else {
    if constexpr (!C::kBothSparse) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    Consumer<C>::template run<Walk>(p, smem, group);
  }
}

/// One warp group fills stages, two multiply 64 rows of the tile each. Persistent CTAs, but where
/// both operands are sparse.
template <class C>
__global__ void __launch_bounds__(C::kBoundThreads, C::kCtasPerSm)
    product_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char raw_smem[];
  auto& smem = begin<C>(raw_smem, p.sparse_map, p.dense_map);
  if constexpr (C::kParts) {
    if (p.log2_split > 0) Parts<C>::begin(smem, 1 << p.log2_split);
  }
  if constexpr (C::kEarlyStart) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
  if constexpr (C::kLongRows) {
    using Shared = StretchTiles<C::kTileCols>;
    if (Shared::stretches(p).needed(p.lists.groups[0].length)) return run_roles<C, Shared>(p, smem);
  }
  run_roles<C, TilesOf<C>>(p, smem);
#endif
}

}  // namespace sparsek::bsr::sm90
