#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/band.h"
#include "attention/sm90/piece_grid.h"
#include "attention/sm90/schedule.h"
#include "sparsek/block_mask.h"

namespace sparsek::attn::sm90 {

struct Output {
  void* data = nullptr;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int32_t value_dim = 0;
  bool vectors = false;  // rows can be written 16 bytes at a time
};

struct Lse {
  float* data = nullptr;  // null: not wanted
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

struct Params {
  CUtensorMap q;  // (head_dim, Sq, Hq, B)
  CUtensorMap k;  // (head_dim, Sk, Hkv, B)
  CUtensorMap v;  // (value_dim, Sk, Hkv, B)
  Output out;
  Lse lse;
  Band band;
  BlockMaskView mask;
  std::int32_t q_len = 0;
  std::int32_t group = 1;  // query heads of a kv head
  PieceGrid pieces;
  float scale_log2 = 1;  // of the scores, for powers of two
  // A row's maximum, and with it O, follows the scores only when one exceeds it by this.
  float rescale_margin = 0;
  Schedule schedule;
};

}  // namespace sparsek::attn::sm90
