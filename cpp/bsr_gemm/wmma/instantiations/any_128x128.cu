#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile128x128Flat, Major::any, Major::any>(DType, const Params&, cudaStream_t);
}
