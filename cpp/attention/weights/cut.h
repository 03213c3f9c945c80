#pragma once

#include "attention/problem.h"
#include "attention/q_tiles.h"
#include "attention/weights/params.h"

namespace sparsek::attn::weights {

/// How the weights are cut into CTAs.
struct Cut : QTiles {
  int head_dim = 0;  // of the kernel
  void (*launch)(DType, const Params&, unsigned, cudaStream_t) = nullptr;
  int tile_q = 0;
  int ctas_per_sm = 1;
  std::int64_t num_parts = 1;  // of the keys
  std::int64_t keys_in_part = 0;
};

Cut cut_of(const Problem& problem);

}  // namespace sparsek::attn::weights
