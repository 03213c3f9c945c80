#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "bsr_gemm/sm90/begin.cuh"
#include "bsr_gemm/sm90/launch.h"
#include "bsr_gemm/sm90/sampled_consumer.cuh"
#include "bsr_gemm/sm90/sampled_producer.cuh"
#include "core/cuda_check.h"
#include "primitives/launch.cuh"

namespace sparsek::bsr::sm90 {

/// Persistent CTAs: one warp group fills stages, two multiply 64 rows of the tile each.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sampled_kernel(const __grid_constant__ SampledParams p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char raw_smem[];
  auto& smem = begin<C, SampledStorage<C>>(raw_smem, p.row_map, p.col_map);

  const int group = warp_group();
  if (group == kConsumerGroups) {
    cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
    SampledProducer<C>(p, smem).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    SampledConsumer<C>(p, smem, group).run();
  }
#endif
}

template <class Element, Major kRows, Major kCols, int kInner>
void launch_sampled_config(const SampledParams& params, int ctas, cudaStream_t stream) {
  constexpr int kTileCols = kMostSampledUnits * kSampledUnit, kMostStages = kSampledPieces / 2;
  using C = Config<Element, kRows, kCols, kInner, kTileCols, kMostStages, Kind::sampled>;
  constexpr int kSmemBytes = smem_bytes<C, SampledStorage<C>>();
  cuda_check(cudaFuncSetAttribute(sampled_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kSmemBytes),
             "bsr_gemm: sm90");
  LaunchOptions options;
  options.cooperative = params.most_parts > 1;
  launch_kernel("bsr_gemm: sm90", sampled_kernel<C>, ctas, C::kThreads, kSmemBytes, stream, options,
                params);
}

template <class Element, Major kRows>
void launch_sampled_rows(const KernelKey& key, const SampledParams& params, int ctas,
                         cudaStream_t stream) {
  // Contiguous along k, a box has lines of 64 however narrow the block is.
  const auto launch = key.dense == Major::k ? launch_sampled_config<Element, kRows, Major::k, 64>
                      : key.inner == 64     ? launch_sampled_config<Element, kRows, Major::free, 64>
                      : key.inner == 32 ? launch_sampled_config<Element, kRows, Major::free, 32>
                                        : launch_sampled_config<Element, kRows, Major::free, 16>;
  launch(params, ctas, stream);
}

template <class Element>
void launch_sampled_element(const KernelKey& key, const SampledParams& params, int ctas,
                            cudaStream_t stream) {
  return key.sparse == Major::k
             ? launch_sampled_rows<Element, Major::k>(key, params, ctas, stream)
             : launch_sampled_rows<Element, Major::free>(key, params, ctas, stream);
}

}  // namespace sparsek::bsr::sm90
