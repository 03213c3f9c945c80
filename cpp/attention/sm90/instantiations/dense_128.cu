#include "attention/sm90/all_mma_shapes.h"
#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense96>(DType, const Params&, int, cudaStream_t);
template void launch<Dense96Small>(DType, const Params&, int, cudaStream_t);
template void launch<Dense128>(DType, const Params&, int, cudaStream_t);
template void launch<Dense128Small>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
