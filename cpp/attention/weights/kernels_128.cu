#include "attention/weights/launch.cuh"

namespace sparsek::attn::weights {
template void launch<Config128>(DType, const Params&, unsigned, cudaStream_t);
}  // namespace sparsek::attn::weights
