#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<NarrowLists64>(DType, const Params&, int, cudaStream_t);
template void launch<NarrowLists128>(DType, const Params&, int, cudaStream_t);
template void launch<NarrowLists256>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
