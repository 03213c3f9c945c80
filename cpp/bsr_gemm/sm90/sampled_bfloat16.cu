#include "bsr_gemm/sm90/sampled.cuh"

namespace sparsek::bsr::sm90 {

void launch_sampled_bfloat16(const KernelKey& key, const SampledParams& params, int ctas,
                             cudaStream_t stream) {
  launch_sampled_element<cutlass::bfloat16_t>(key, params, ctas, stream);
}

}  // namespace sparsek::bsr::sm90
