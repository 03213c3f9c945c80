#include "attention/wmma/launch.cuh"

namespace sparsek::attn::wmma {
template void launch<Narrow64>(DType, const Params&, cudaStream_t);
template void launch<Narrow128>(DType, const Params&, cudaStream_t);
template void launch<Narrow256>(DType, const Params&, cudaStream_t);
}  // namespace sparsek::attn::wmma
