#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense64Joined>(DType, const Params&, int, cudaStream_t);
}
