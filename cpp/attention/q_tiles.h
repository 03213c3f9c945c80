#pragma once

#include "attention/problem.h"
#include "core/integers.h"

namespace sparsek::attn {

/// How the queries are cut into tiles that never cross the border of a q block, whose list they
/// follow.
struct QTiles {
  std::int64_t q_block = 0;         // that a q tile stays in
  std::int64_t tiles_in_block = 1;  // q tiles that a q block is cut into
  std::int64_t num_q_tiles = 0;     // of one head
  std::int64_t num_tiles = 0;       // of all heads and batches
};

inline QTiles cut_queries(const Problem& p, std::int64_t q_block, int tile_q) {
  QTiles tiles;
  tiles.q_block = q_block;
  tiles.tiles_in_block = ceil_div(q_block, tile_q);
  tiles.num_q_tiles = ceil_div(p.q_len, q_block) * tiles.tiles_in_block;
  tiles.num_tiles = tiles.num_q_tiles * p.num_q_heads * p.batch;
  return tiles;
}

}  // namespace sparsek::attn
