#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<PackedLists64>(DType, const Params&, int, cudaStream_t);
}
