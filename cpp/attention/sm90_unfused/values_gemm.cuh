#pragma once

#include "attention/sm90_unfused/gemm.cuh"

namespace sparsek::attn::sm90_unfused {

template <class Element, int kTileN>
void run_values_gemm(const Chunk& chunk, std::int64_t value_dim, const Matrices& weights,
                     const Matrices& v, const Matrices& out, cudaStream_t stream) {
  using Values = Gemm<Element, SharedColMajor, Element, ValuesConfig<kTileN>>;
  const SharedColMajor stride_v{
      {}, tma_stride(chunk.num_cols, v.row_stride), shared_batches(v, chunk)};
  run_gemm<Values, Element, Element>("attention: weights v", chunk, static_cast<int>(value_dim),
                                     static_cast<int>(chunk.num_cols), 1.0f, weights, v, stride_v,
                                     out, stream);
}

template <int kTileN>
void values_gemm(DType dtype, const Chunk& chunk, std::int64_t value_dim, const Matrices& weights,
                 const Matrices& v, const Matrices& out, cudaStream_t stream) {
  const auto run_as = dtype == DType::float16 ? run_values_gemm<cutlass::half_t, kTileN>
                                              : run_values_gemm<cutlass::bfloat16_t, kTileN>;
  run_as(chunk, value_dim, weights, v, out, stream);
}

}  // namespace sparsek::attn::sm90_unfused
