#include "attention/sm90/all_mma_shapes.h"
#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense192x128>(DType, const Params&, int, cudaStream_t);
template void launch<Dense192x128Small>(DType, const Params&, int, cudaStream_t);
template void launch<Dense192>(DType, const Params&, int, cudaStream_t);
template void launch<Dense256>(DType, const Params&, int, cudaStream_t);
}  // namespace sparsek::attn::sm90
