#pragma once

#include <algorithm>

#include "bsr_gemm/sm90/kernel.cuh"
#include "bsr_gemm/sm90/launch.h"
#include "core/cuda_check.h"

namespace sparsek::bsr::sm90 {

template <class C>
void launch_config(const Params& params, int num_sms, cudaStream_t stream) {
  cuda_check(cudaFuncSetAttribute(product_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  smem_bytes<C>()),
             "bsr_gemm: sm90");
  const int ctas = std::min(num_sms, params.num_tiles);
  product_kernel<C><<<ctas, kThreads, smem_bytes<C>(), stream>>>(params);
  cuda_check(cudaGetLastError(), "bsr_gemm: sm90");
}

template <class Element, Major kSparse, Major kDense, int kInner>
void launch_tile(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  if (key.tile_cols == 64) {
    launch_config<Config<Element, kSparse, kDense, kInner, 64, 8>>(params, num_sms, stream);
  } else {
    launch_config<Config<Element, kSparse, kDense, kInner, 256, 4>>(params, num_sms, stream);
  }
}

template <class Element, int kInner>
void launch_majors(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  if (key.sparse == Major::k) {
    return key.dense == Major::k
               ? launch_tile<Element, Major::k, Major::k, kInner>(key, params, num_sms, stream)
               : launch_tile<Element, Major::k, Major::free, kInner>(key, params, num_sms, stream);
  }
  return key.dense == Major::k
             ? launch_tile<Element, Major::free, Major::k, kInner>(key, params, num_sms, stream)
             : launch_tile<Element, Major::free, Major::free, kInner>(key, params, num_sms, stream);
}

template <int kInner>
void launch_inner(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  return key.dtype == DType::float16
             ? launch_majors<cutlass::half_t, kInner>(key, params, num_sms, stream)
             : launch_majors<cutlass::bfloat16_t, kInner>(key, params, num_sms, stream);
}

}  // namespace sparsek::bsr::sm90
