#include "bsr_gemm/sm90/launch.cuh"

namespace sparsek::bsr::sm90 {

void launch_long_64(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  launch_inner<64, true>(key, params, num_sms, stream);
}

}  // namespace sparsek::bsr::sm90
