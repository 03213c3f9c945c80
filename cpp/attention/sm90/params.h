#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/band.h"
#include "attention/output.h"
#include "attention/sm90/list_grid.h"
#include "attention/sm90/piece_grid.h"
#include "attention/sm90/rows.h"
#include "attention/sm90/schedule.h"
#include "attention/sm90/shared_parts.h"
#include "sparsek/block_mask.h"

namespace sparsek::attn::sm90 {

/// Q or K for a warp that reads them without TMA.
struct Operand {
  const void* data = nullptr;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

struct Params {
  CUtensorMap q;  // (head_dim, Sq, Hq, B), if heads are packed (head_dim, heads, Sq, Hq / heads, B)
  CUtensorMap k;  // (head_dim, Sk, Hkv, B)
  CUtensorMap v;  // (value_dim, Sk, Hkv, B)
  Output out;
  Lse lse;
  Band band;
  BlockMaskView mask;
  ListGrid lists;          // of the mask
  std::int32_t q_len = 0;  // rows
  std::int32_t group = 1;  // query heads of a kv head
  PieceGrid pieces;
  float scale_log2 = 1;  // of the scores, for powers of two
  // A row's maximum, and with it O, follows the scores only when one exceeds it by this.
  float rescale_margin = 0;
  Schedule schedule;
  bool keys_read_once = false;  // with lists: by one q tile, so that L2 need not keep them
  SharedParts shared;           // of schedule.shares
  Rows rows;
  CUtensorMap o;   // (value_dim, Sq, Hq, B), 16 rows at a time, if out.vectors
  Operand q_rows;  // the same as q and k, without TMA
  Operand k_rows;
  std::int32_t head_dim = 0;
};

/// Rows and queries are the same where no heads are packed.
template <class C>
SPARSEK_HOST_DEVICE std::int32_t rows_of_tile(const Params& params) {
  if constexpr (C::kPacks) return params.rows.of_tile;
  return C::kTileQ;
}
template <class C>
SPARSEK_HOST_DEVICE std::int32_t query_of(const Params& params, std::int32_t row) {
  if constexpr (C::kPacks) return params.rows.query(row);
  return row;
}

}  // namespace sparsek::attn::sm90
