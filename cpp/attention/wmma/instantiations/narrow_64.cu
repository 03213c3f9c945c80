#include "attention/wmma/launch.cuh"

namespace sparsek::attn::wmma {
template void launch<Narrow64>(DType, const Params&, cudaStream_t);
}
