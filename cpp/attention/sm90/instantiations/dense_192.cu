#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // N of 112; a minute of parsing
#include "attention/sm90/launch.cuh"

namespace sparsek::attn::sm90 {
template void launch<Dense192>(DType, const Params&, int, cudaStream_t);
}
