#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense64>(DType, const Params&, int, cudaStream_t);
template void launch<Dense64Wide>(DType, const Params&, int, cudaStream_t);
template void launch<Dense64Small>(DType, const Params&, int, cudaStream_t);
template void launch<Dense64Joined>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
