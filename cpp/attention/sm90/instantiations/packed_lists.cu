#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<PackedLists64>(DType, const Params&, int, cudaStream_t);
template void launch<PackedLists128>(DType, const Params&, int, cudaStream_t);
template void launch<PackedLists256>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
