#include "attention/sm90/all_mma_shapes.h"
#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense96>(DType, const Params&, int, cudaStream_t);
}
