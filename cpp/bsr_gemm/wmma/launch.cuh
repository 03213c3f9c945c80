#pragma once

#include "bsr_gemm/wmma/kernel.cuh"
#include "bsr_gemm/wmma/kernels.h"
#include "core/cuda_check.h"

namespace sparsek::bsr::wmma {

template <class Element, class C, Major kLeft, Major kRight>
void launch_for(const Params& params, cudaStream_t stream) {
  constexpr int kSmemBytes = sizeof(Storage<C>);
  static_assert(kSmemBytes <= smem_bytes_of<C>());
  auto* kernel = bsr_gemm_kernel<Element, C, kLeft, kRight>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
             "bsr_gemm wmma");
  kernel<<<static_cast<unsigned>(params.num_tiles), C::kThreads, kSmemBytes, stream>>>(params);
  cuda_check(cudaGetLastError(), "bsr_gemm wmma");
}

template <class C, Major kLeft, Major kRight>
void launch(DType dtype, const Params& params, cudaStream_t stream) {
  if (dtype == DType::float16) {
    launch_for<cutlass::half_t, C, kLeft, kRight>(params, stream);
  } else {
    launch_for<cutlass::bfloat16_t, C, kLeft, kRight>(params, stream);
  }
}

}  // namespace sparsek::bsr::wmma
