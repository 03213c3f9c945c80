#pragma once

// Where the row of a warp lies, what its query may see, and its scores with the rest erased.

#include "attention/block_lists.h"
#include "attention/sm90_unfused/kernels.h"
#include "attention/sm90_unfused/packed.cuh"

namespace sparsek::attn::sm90_unfused {

enum class Masking {
  band,            // causal, window or nothing
  vec_in_block,    // kv_block is a multiple of eight: a Vec lies in one kv block
  block_per_score  // any other kv_block
};

struct SoftmaxParams {
  Chunk chunk;
  Band band;
  BlockMaskView mask;
  BlockTable table;
  Matrices scores;
  Matrices lse;  // no data: not wanted
  Matrices q, k;
  int head_dim;
  float scale_log2;
};

/// The row of a warp: where it lies, and what its query may see, in columns of the chunk.
struct Row {
  int batch = 0;
  int head = 0;
  int q = 0;  // in the chunk
  std::uint16_t* scores = nullptr;
  int begin = 0;
  int end = 0;
  const std::int32_t* blocks = nullptr;  // its row of the block table
  std::int64_t row_in_block = 0;

  __device__ std::uint32_t band_bits(int column) const {
    const auto ones_below = [column](int limit) {
      const int count = min(max(limit - column, 0), Vec::kSize);
      return (1u << count) - 1u;
    };
    return ones_below(end) & ~ones_below(begin);
  }
};

__device__ inline std::uint32_t bitmap_bits(const SoftmaxParams& p, const Row& row,
                                            std::int32_t entry, std::uint32_t key_in_block) {
  const std::uint32_t* words = bitmap_row(p.mask, entry - 2, row.row_in_block);
  return words[key_in_block / 32] >> (key_in_block % 32);
}

/// One bit for each of the eight scores from `column` on.
template <Masking kMasking>
__device__ std::uint32_t allowed_bits(const SoftmaxParams& p, const Row& row, int column) {
  std::uint32_t bits = row.band_bits(column);
  if (kMasking == Masking::band || bits == 0) return bits;
  const auto kv_block = static_cast<std::uint32_t>(p.mask.kv_block);
  const auto key = static_cast<std::uint32_t>(p.chunk.kv_begin) + column;
  if constexpr (kMasking == Masking::vec_in_block) {
    const std::int32_t entry = row.blocks[key / kv_block];
    if (entry == 0) return 0;
    return entry == 1 ? bits : bits & bitmap_bits(p, row, entry, key % kv_block);
  } else {
    for (int i = 0; i < Vec::kSize; ++i) {
      if (!(bits >> i & 1u)) continue;
      const std::int32_t entry = row.blocks[(key + i) / kv_block];
      const bool allowed =
          entry == 1 || (entry > 1 && (bitmap_bits(p, row, entry, (key + i) % kv_block) & 1u));
      if (!allowed) bits &= ~(1u << i);
    }
    return bits;
  }
}

/// Eight scores, those that may not be seen as -inf. kSaturate: infinities come back to the largest
/// float16.
template <Masking kMasking, bool kSaturate>
__device__ Vec masked_scores(const SoftmaxParams& p, const Row& row, int column) {
  Vec vec;
  // Most vectors lie whole inside the band: for them, one load and no arithmetic on bits.
  if (kMasking == Masking::band && column >= row.begin && column + Vec::kSize <= row.end) {
    vec = *reinterpret_cast<const Vec*>(row.scores + column);
    if (kSaturate) saturate(vec);
    return vec;
  }
  const std::uint32_t allowed = allowed_bits<kMasking>(p, row, column);
  // Nothing to see here: not even read.
  const int count = allowed == 0 ? 0 : static_cast<int>(p.chunk.num_cols) - column;
  vec = load_vec(row.scores + column, count);
  if (kSaturate) saturate(vec);
  if (allowed != 0xffu) erase(vec, allowed);
  return vec;
}

/// The row of query `q` of the chunk.
template <Masking kMasking>
__device__ Row find_row(const SoftmaxParams& p, int q) {
  Row row;
  row.batch = blockIdx.z;
  row.head = blockIdx.y;
  row.q = q;
  const std::int64_t query = p.chunk.q_begin + q;
  const auto to_column = [&p](std::int64_t key) {
    const std::int64_t column = key - p.chunk.kv_begin;
    return static_cast<int>(column < 0 ? 0 : column < p.chunk.num_cols ? column : p.chunk.num_cols);
  };
  row.begin = to_column(p.band.begin(query));
  row.end = to_column(p.band.end(query));
  row.scores = static_cast<std::uint16_t*>(p.scores.data) + row.batch * p.scores.batch_stride +
               row.head * p.scores.head_stride + q * p.scores.row_stride;
  if constexpr (kMasking != Masking::band) {
    const std::int64_t mask_batch = p.mask.num_batches == 1 ? 0 : row.batch;
    const std::int64_t head = list_head(p.mask, row.head, p.chunk.num_heads);
    const std::int64_t list = (mask_batch * p.mask.num_heads + head) * p.table.num_q_blocks +
                              query / p.mask.q_block - p.table.q_block_begin;
    row.blocks = p.table.entries + list * p.table.num_kv_blocks;
    row.row_in_block = query % p.mask.q_block;
  }
  return row;
}

}  // namespace sparsek::attn::sm90_unfused
