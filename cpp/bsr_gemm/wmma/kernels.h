#pragma once

#include <cuda_runtime_api.h>

#include "bsr_gemm/wmma/config.h"
#include "bsr_gemm/wmma/params.h"
#include "sparsek/types.h"

namespace sparsek::bsr::wmma {

// tile_rows, tile_cols, tile_k, warps_in_rows, warps_in_cols, stages, ctas_per_sm. docs/wmma.md has
// the sweep behind the large ones; the others are for smaller blocks.
using Tile128x256Deep = Config<128, 256, 64, 2, 4, 3, 1, true>;  // chips with much shared memory
using Tile128x256 = Config<128, 256, 32, 2, 4, 3, 1, true>;
using Tile128x128 = Config<128, 128, 64, 2, 2, 2, 2>;
using Tile128x128Flat = Config<128, 128, 32, 2, 2, 4, 2>;  // any axes: the other one would spill
using Tile64x256 = Config<64, 256, 32, 1, 4, 3, 2>;
using Tile64x128 = Config<64, 128, 32, 2, 2, 4, 2>;
using Tile32x128 = Config<32, 128, 32, 1, 4, 4, 2>;
using Tile32x32 = Config<32, 32, 64, 2, 2, 4, 2>;

/// Enqueues the kernel of a configuration, for operands that are contiguous along those axes.
template <class C, Major kLeft, Major kRight>
void launch(DType dtype, const Params& params, cudaStream_t stream);

}  // namespace sparsek::bsr::wmma
