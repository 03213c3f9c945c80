#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile64x128, Major::any, Major::any>(DType, const Params&, cudaStream_t);
}
