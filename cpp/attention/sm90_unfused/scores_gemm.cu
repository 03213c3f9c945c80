#include "attention/sm90_unfused/gemm.cuh"

namespace sparsek::attn::sm90_unfused {
namespace {

template <class Element>
void run(const Chunk& chunk, std::int64_t head_dim, float scale_log2, const Matrices& q,
         const Matrices& k, const Matrices& scores, cudaStream_t stream) {
  using Scores = Gemm<Element, SharedRowMajor, cutlass::half_t, ScoresConfig>;
  const SharedRowMajor stride_k{
      tma_stride(chunk.num_cols, k.row_stride), {}, shared_batches(k, chunk)};
  run_gemm<Scores, Element, cutlass::half_t>(
      "attention: q k^T", chunk, static_cast<int>(chunk.num_cols), static_cast<int>(head_dim),
      scale_log2, q, k, stride_k, scores, stream);
}

}  // namespace

void scores_gemm(DType dtype, const Chunk& chunk, std::int64_t head_dim, float scale_log2,
                 const Matrices& q, const Matrices& k, const Matrices& scores,
                 cudaStream_t stream) {
  const auto run_as = dtype == DType::float16 ? run<cutlass::half_t> : run<cutlass::bfloat16_t>;
  run_as(chunk, head_dim, scale_log2, q, k, scores, stream);
}

}  // namespace sparsek::attn::sm90_unfused
