#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile32x32, Major::any, Major::any>(DType, const Params&, cudaStream_t);
template void launch<Tile32x128, Major::any, Major::any>(DType, const Params&, cudaStream_t);
template void launch<Tile64x128, Major::any, Major::any>(DType, const Params&, cudaStream_t);
template void launch<Tile128x128Flat, Major::any, Major::any>(DType, const Params&, cudaStream_t);
}  // namespace sparsek::bsr::wmma
