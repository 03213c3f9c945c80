#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Lists96>(DType, const Params&, int, cudaStream_t);
template void launch<Lists128>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
