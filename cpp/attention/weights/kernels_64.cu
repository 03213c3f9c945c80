#include "attention/weights/launch.cuh"

namespace sparsek::attn::weights {
template void launch<Config64>(DType, const Params&, unsigned, cudaStream_t);
}  // namespace sparsek::attn::weights
