#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/divisor.h"
#include "sparsek/block_mask.h"

namespace sparsek::attn::sm90 {

/// Which list a q tile has. The producer looks that up between two loads, and divisions by what it
/// does not know took it longer than the reads from memory.
struct ListGrid {
  Divisor tiles_of_block;  // q tiles with the same list
  Divisor heads_of_list;   // query heads with the same lists
  std::int32_t heads = 1;  // that have lists of their own, of a batch
  std::int32_t num_q_blocks = 1;
  std::int32_t num_kv_blocks = 0;
  bool batches = false;  // have lists of their own

  SPARSEK_HOST_DEVICE std::int32_t list_number(std::int32_t batch, std::int32_t head,
                                               std::int32_t q_tile) const {
    return ((batches ? batch : 0) * heads + head / heads_of_list) * num_q_blocks +
           q_tile / tiles_of_block;
  }
};

/// Of tiles of `tile_q` queries of `num_q_heads` heads.
inline ListGrid make_list_grid(const BlockMaskView& mask, std::int64_t tile_q,
                               std::int64_t num_q_heads) {
  ListGrid grid;
  grid.tiles_of_block = std::max<std::int64_t>(1, mask.q_block / tile_q);
  grid.heads_of_list = num_q_heads / mask.num_heads;
  grid.heads = static_cast<std::int32_t>(mask.num_heads);
  grid.num_q_blocks = static_cast<std::int32_t>(mask.num_q_blocks());
  grid.num_kv_blocks = static_cast<std::int32_t>(mask.num_kv_blocks());
  grid.batches = mask.num_batches > 1;
  return grid;
}

}  // namespace sparsek::attn::sm90
