#include "attention/wmma/launch.cuh"

namespace sparsek::attn::wmma {
template void launch<Wide64>(DType, const Params&, cudaStream_t);
template void launch<Wide128>(DType, const Params&, cudaStream_t);
}  // namespace sparsek::attn::wmma
