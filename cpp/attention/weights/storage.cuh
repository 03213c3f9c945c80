#pragma once

#include "attention/weights/config.h"
#include "attention/weights/params.h"

namespace sparsek::attn::weights {

/// The shared memory of a CTA. Rows of head_dim elements, their 16-byte units swizzled.
template <class C>
struct Storage {
  alignas(128) unsigned char q[C::kQBytes];
  alignas(128) unsigned char k[2][C::kKBytes];
  std::int32_t blocks[kWindow];         // of a window (visible_blocks.cuh)
  std::int32_t entries[2][C::kTileKv];  // of the keys of the tiles at hand
};

/// The q tile of a CTA, and its part of the keys.
struct Work {
  std::int32_t q_begin = 0;
  std::int32_t q_end = 0;
  std::int32_t row_in_block = 0;  // of the first query
  std::int32_t head = 0;
  std::int32_t batch = 0;
  std::int32_t part = 0;

  /// Of query q_begin + tile_row, among those of all batches and heads.
  __device__ __forceinline__ std::int64_t row(const Params& p, int tile_row) const {
    return (std::int64_t{batch} * p.num_heads + head) * p.q_len + q_begin + tile_row;
  }
};

/// Whether the weights of a tile of keys can be written 16 bytes at a time.
__device__ __forceinline__ bool writes_vectors(const Params& p, std::int32_t key) {
  const std::int32_t kv_len = p.weights.value_dim;
  return p.weights.vectors && (key + kTileKv <= kv_len || kv_len % 8 == 0);
}

/// `place`: of all q tiles of all heads, each as often as there are parts.
template <class C>
__device__ __forceinline__ Work work_of(const Params& p, std::uint32_t place, int num_parts) {
  const auto q_tile = static_cast<std::int32_t>(place % p.num_q_tiles);
  place /= p.num_q_tiles;
  Work work;
  work.part = static_cast<std::int32_t>(place % num_parts);
  place /= num_parts;
  work.head = static_cast<std::int32_t>(place % p.num_heads);
  work.batch = static_cast<std::int32_t>(place / p.num_heads);
  const std::int32_t block = q_tile / p.tiles_in_block;
  work.row_in_block = q_tile % p.tiles_in_block * C::kTileQ;
  work.q_begin = block * p.q_block + work.row_in_block;
  work.q_end = min(p.q_len, min(block * p.q_block + p.q_block, work.q_begin + C::kTileQ));
  return work;
}

}  // namespace sparsek::attn::weights
