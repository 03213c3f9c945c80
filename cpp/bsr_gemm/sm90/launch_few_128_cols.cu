#include "bsr_gemm/sm90/few_launch.cuh"

namespace sparsek::bsr::sm90 {

void launch_few_128_cols(const KernelKey& key, const FewParams& params, int num_sms,
                         cudaStream_t stream) {
  launch_few<64, 128>(key, params, num_sms, stream);
}

}  // namespace sparsek::bsr::sm90
