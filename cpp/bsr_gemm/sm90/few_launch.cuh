#pragma once

#include "bsr_gemm/sm90/few_kernel.cuh"
#include "bsr_gemm/sm90/launch.h"
#include "core/cuda_check.h"
#include "primitives/launch.cuh"

namespace sparsek::bsr::sm90 {

template <class C>
void launch_few_config(int groups, FewParams params, int num_sms, cudaStream_t stream) {
  const FewLayout<C> layout{groups, params.staging_apart};
  params.stages = layout.stages();
  params.turns = C::turns(groups);
  params.staging_apart = layout.apart();
  cuda_check(cudaFuncSetAttribute(few_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  layout.bytes()),
             "bsr_gemm: sm90");
  launch_kernel("bsr_gemm: sm90", few_kernel<C>, 2 * few_clusters(num_sms), C::threads(groups),
                layout.bytes(), stream, {true, 2}, params);
}

template <class Element, int kSide, int kGroupCols>
void launch_few_majors(const KernelKey& key, const FewParams& params, int num_sms,
                       cudaStream_t stream) {
  constexpr Major k = Major::k, free = Major::free;
  const bool dense_k = key.dense == Major::k;
  const auto launch =
      key.sparse == Major::k
          ? (dense_k ? launch_few_config<FewConfig<Element, k, k, kSide, kGroupCols>>
                     : launch_few_config<FewConfig<Element, k, free, kSide, kGroupCols>>)
          : (dense_k ? launch_few_config<FewConfig<Element, free, k, kSide, kGroupCols>>
                     : launch_few_config<FewConfig<Element, free, free, kSide, kGroupCols>>);
  launch(key.tile_cols / kGroupCols, params, num_sms, stream);
}

template <int kSide, int kGroupCols = 64>
void launch_few(const KernelKey& key, const FewParams& params, int num_sms, cudaStream_t stream) {
  const auto launch = key.dtype == DType::float16
                          ? launch_few_majors<cutlass::half_t, kSide, kGroupCols>
                          : launch_few_majors<cutlass::bfloat16_t, kSide, kGroupCols>;
  launch(key, params, num_sms, stream);
}

}  // namespace sparsek::bsr::sm90
