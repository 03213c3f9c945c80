#include "bsr_gemm/sm90_dense/gemm.cuh"

namespace sparsek::bsr::sm90_dense {

void gemm_bfloat16(const Gemm& gemm, cudaStream_t stream) {
  run_gemm<cutlass::bfloat16_t>(gemm, stream);
}

}  // namespace sparsek::bsr::sm90_dense
