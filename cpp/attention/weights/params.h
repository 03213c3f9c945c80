#pragma once

#include <cuda_runtime_api.h>

#include "attention/divisor.h"
#include "attention/input.h"
#include "attention/output.h"
#include "sparsek/block_mask.h"
#include "sparsek/types.h"

namespace sparsek::attn::weights {

struct Params {
  Input q;
  Input k;
  Output weights;             // its value_dim is kv_len
  Lse lse;                    // as a fused kernel wrote it
  float* sums = nullptr;      // [part][row]: of the weights of a part of the keys
  std::int64_t num_rows = 0;  // of all batches and heads
  Band band;
  BlockMaskView mask;
  Divisor kv_block;
  bool lists = false;
  std::int32_t q_len = 0;
  std::int32_t num_heads = 0;
  std::int32_t group = 1;  // query heads of a kv head
  // A q tile lies in one q block (or, without lists, is one).
  std::int32_t q_block = 0;
  std::int32_t tiles_in_block = 1;
  std::int32_t num_q_tiles = 0;  // of a head
  std::int32_t num_parts = 1;    // of the keys, each a CTA's
  std::int32_t keys_in_part = 0;
  float scale_log2 = 1;  // of the scores, for powers of two
};

/// Enqueues the kernel that writes the weights by lse, and the one that makes rows anew.
template <class C>
void launch(DType dtype, const Params& params, unsigned num_tiles, cudaStream_t stream);

}  // namespace sparsek::attn::weights
