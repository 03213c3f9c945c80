#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile32x128>(DType, const Params&, cudaStream_t);
}
