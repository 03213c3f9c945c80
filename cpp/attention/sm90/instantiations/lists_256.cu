#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Lists192x128>(DType, const Params&, int, cudaStream_t);
template void launch<Lists192>(DType, const Params&, int, cudaStream_t);
template void launch<Lists256>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
