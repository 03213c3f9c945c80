#pragma once

#include <cstdint>

#include "attention/band.h"
#include "attention/input.h"
#include "attention/output.h"
#include "sparsek/block_mask.h"

namespace sparsek::attn::wmma {

struct Params {
  Input q;
  Input k;
  Input v;
  Output out;
  Lse lse;
  Band band;
  BlockMaskView mask;
  std::int32_t kv_block = 0;           // without lists: longer than all keys
  std::int32_t granules_in_block = 1;  // the last one may be cut short
  std::int32_t q_len = 0;
  std::int32_t group = 1;  // query heads of a kv head
  // A q tile lies in one q block (or, without lists, is one).
  std::int32_t q_block = 0;
  std::int32_t tiles_in_block = 1;
  std::int32_t num_q_tiles = 0;  // of a head
  std::int32_t num_heads = 0;
  std::int32_t section = 0;    // heads that are visited together, the last tiles first; 0: in order
  std::int32_t all_heads = 0;  // of all batches
  bool lists = false;
  bool negate_q = false;  // for a negative scale
  float scale_log2 = 1;   // of the scores, for powers of two; positive
  // A row's maximum, and with it O, follows the scores only when one exceeds it by this.
  float rescale_margin = 0;
};

}  // namespace sparsek::attn::wmma
