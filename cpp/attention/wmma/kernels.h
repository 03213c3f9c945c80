#pragma once

#include <cuda_runtime_api.h>

#include "attention/wmma/config.h"
#include "attention/wmma/params.h"
#include "sparsek/types.h"

namespace sparsek::attn::wmma {

// head_dim, fragments, warps, tile_kv, step, q_in_regs, ctas_per_sm. docs/wmma.md has the sweep
// behind each. By its q tile: wide ones read K and V less often, narrow ones are for q blocks of 64
// and for short lengths.
using Wide64 = Config<64, 2, 4, 64, 64, true, 2>;
using Wide128 = Config<128, 2, 4, 64, 64, false, 2>;
using Narrow64 = Config<64, 1, 4, 64, 64, true, 3>;
using Narrow128 = Config<128, 1, 4, 64, 64, true, 2>;
using Narrow256 = Config<256, 1, 4, 32, 32, false, 2>;

/// Enqueues the attention kernel of a configuration.
template <class C>
void launch(DType dtype, const Params& params, cudaStream_t stream);

}  // namespace sparsek::attn::wmma
