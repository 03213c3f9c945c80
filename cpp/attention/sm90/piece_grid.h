#pragma once

#include <cstdint>

namespace sparsek::attn::sm90 {

/// How tiles are cut into pieces, one TMA box each: a tile takes the next `per_tile` of a list's
/// pieces, whatever block they come from.
struct PieceGrid {
  std::int32_t keys = 0;  // of a piece
  std::int32_t per_tile = 1;
  std::int32_t per_block = 1;
  std::int32_t entry_step = 0;  // per_tile / per_block
  std::int32_t piece_step = 0;  // per_tile % per_block
};

inline PieceGrid make_piece_grid(std::int32_t tile_kv, std::int32_t kv_block) {
  std::int32_t keys = tile_kv;
  for (std::int32_t rest = kv_block; rest != 0;) {  // their greatest common divisor
    const std::int32_t next = keys % rest;
    keys = rest;
    rest = next;
  }
  const std::int32_t per_tile = tile_kv / keys;
  const std::int32_t per_block = kv_block / keys;
  return {keys, per_tile, per_block, per_tile / per_block, per_tile % per_block};
}

}  // namespace sparsek::attn::sm90
