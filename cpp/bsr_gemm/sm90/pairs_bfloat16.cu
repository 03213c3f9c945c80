#include "bsr_gemm/sm90/launch.cuh"

namespace sparsek::bsr::sm90 {

void launch_pairs_bfloat16(const KernelKey& key, const Params& params, cudaStream_t stream) {
  launch_pairs_element<cutlass::bfloat16_t>(key, params, stream);
}

}  // namespace sparsek::bsr::sm90
