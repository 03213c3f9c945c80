#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile128x256, Major::k, Major::free>(DType, const Params&, cudaStream_t);
}
