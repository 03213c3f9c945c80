#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Split64>(DType, const Params&, int, cudaStream_t);
template void launch<Split128>(DType, const Params&, int, cudaStream_t);
template void launch<Split256>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
