#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile128x256, Major::k, Major::free>(DType, const Params&, cudaStream_t);
template void launch<Tile128x256, Major::free, Major::k>(DType, const Params&, cudaStream_t);
template void launch<Tile128x256Deep, Major::k, Major::free>(DType, const Params&, cudaStream_t);
template void launch<Tile128x256Deep, Major::free, Major::k>(DType, const Params&, cudaStream_t);
}  // namespace sparsek::bsr::wmma
