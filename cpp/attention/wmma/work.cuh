#pragma once

#include <cstdint>

#include "attention/wmma/params.h"

namespace sparsek::attn::wmma {

/// The q tile of a CTA.
struct Work {
  std::int32_t q_begin = 0;
  std::int32_t q_end = 0;
  std::int32_t head = 0;
  std::int32_t batch = 0;
};

/// Which q tile a CTA computes.
template <class C>
__device__ __forceinline__ Work work_of(const Params& p, std::int32_t place) {
  std::int32_t q_tile;
  std::int32_t head;  // of all batches
  if (p.section == 0) {
    q_tile = place % p.num_q_tiles;
    head = place / p.num_q_tiles;
  } else {
    const std::int32_t first = place / (p.section * p.num_q_tiles) * p.section;
    const std::int32_t heads = min(p.section, p.all_heads - first);
    const std::int32_t within = place - first * p.num_q_tiles;
    q_tile = p.num_q_tiles - 1 - within / heads;
    head = first + within % heads;
  }
  const std::int32_t block = q_tile / p.tiles_in_block;
  Work work;
  work.q_begin = block * p.q_block + q_tile % p.tiles_in_block * C::kTileQ;
  work.q_end = min(p.q_len, min(block * p.q_block + p.q_block, work.q_begin + C::kTileQ));
  work.head = head % p.num_heads;
  work.batch = head / p.num_heads;
  return work;
}

}  // namespace sparsek::attn::wmma
