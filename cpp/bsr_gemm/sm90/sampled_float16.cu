#include "bsr_gemm/sm90/sampled.cuh"

namespace sparsek::bsr::sm90 {

void launch_sampled_float16(const KernelKey& key, const SampledParams& params, int ctas,
                            cudaStream_t stream) {
  launch_sampled_element<cutlass::half_t>(key, params, ctas, stream);
}

}  // namespace sparsek::bsr::sm90
