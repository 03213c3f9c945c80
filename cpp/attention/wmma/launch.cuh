#pragma once

#include "attention/wmma/kernel.cuh"
#include "attention/wmma/kernels.h"
#include "core/cuda_check.h"

namespace sparsek::attn::wmma {

template <class Element, class C>
void launch_for(const Params& params, cudaStream_t stream) {
  constexpr int kSmemBytes = sizeof(Storage<C>);
  static_assert(kSmemBytes <= smem_bytes_of<C>());
  auto* kernel = attention_kernel<Element, C>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
             "attention wmma");
  const auto ctas = static_cast<unsigned>(params.num_q_tiles * params.all_heads);
  kernel<<<ctas, C::kThreads, kSmemBytes, stream>>>(params);
  cuda_check(cudaGetLastError(), "attention wmma");
}

template <class C>
void launch(DType dtype, const Params& params, cudaStream_t stream) {
  if (dtype == DType::float16) {
    launch_for<cutlass::half_t, C>(params, stream);
  } else {
    launch_for<cutlass::bfloat16_t, C>(params, stream);
  }
}

}  // namespace sparsek::attn::wmma
