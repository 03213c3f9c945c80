#pragma once

#include "attention/weights/kernel.cuh"
#include "core/cuda_check.h"

namespace sparsek::attn::weights {

template <class Element, class C>
void launch_for(const Params& params, unsigned num_tiles, cudaStream_t stream) {
  constexpr int kSmemBytes = sizeof(Storage<C>);
  static_assert(kSmemBytes <= 99 * 1024, "every chip from sm_80 on can run it");
  const auto enqueue = [&](auto* kernel, unsigned ctas) {
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
        "attention weights");
    kernel<<<ctas, C::kThreads, kSmemBytes, stream>>>(params);
    cuda_check(cudaGetLastError(), "attention weights");
  };
  enqueue(weights_kernel<Element, C>, num_tiles * static_cast<unsigned>(params.num_parts));
  enqueue(make_anew_kernel<Element, C>, num_tiles);
}

template <class C>
void launch(DType dtype, const Params& params, unsigned num_tiles, cudaStream_t stream) {
  if (dtype == DType::float16) {
    launch_for<cutlass::half_t, C>(params, num_tiles, stream);
  } else {
    launch_for<cutlass::bfloat16_t, C>(params, num_tiles, stream);
  }
}

}  // namespace sparsek::attn::weights
