#include "bsr_gemm/wmma/launch.cuh"

namespace sparsek::bsr::wmma {
template void launch<Tile128x256Deep, Major::free, Major::k>(DType, const Params&, cudaStream_t);
}
