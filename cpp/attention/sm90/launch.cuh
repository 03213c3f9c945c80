#pragma once

#include "attention/sm90/kernel.cuh"
#include "attention/sm90/kernels.h"
#include "primitives/launch.cuh"

namespace sparsek::attn::sm90 {

template <class Element, class C>
void launch_for(const Params& params, int num_ctas, cudaStream_t stream) {
  constexpr int kSmemBytes =
      C::kTeams * sizeof(Storage<Element, C>) + (C::kJoins ? sizeof(Exchange<C>) : 0);
  // What an SM has, less the 1 KB that each CTA costs besides.
  static_assert((kSmemBytes + 1024) * C::kCtasPerSm <= 228 * 1024);
  auto* kernel = attention_kernel<Element, C>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
             "attention sm90");
  launch_dependent("attention sm90", kernel, num_ctas, C::kThreads, kSmemBytes, stream, params);
}

template <class C>
void launch(DType dtype, const Params& params, int num_ctas, cudaStream_t stream) {
  if (dtype == DType::float16) {
    launch_for<cutlass::half_t, C>(params, num_ctas, stream);
  } else {
    launch_for<cutlass::bfloat16_t, C>(params, num_ctas, stream);
  }
}

}  // namespace sparsek::attn::sm90
