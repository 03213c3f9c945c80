#pragma once

// Before CuTe, by kernels whose tiles have 80 or 112 keys: it makes WGMMA of every N known, which
// takes longer to parse than all the rest. The host's pass has no use for it.
#ifdef __CUDA_ARCH__
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
#endif
