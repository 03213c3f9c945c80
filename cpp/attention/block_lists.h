#pragma once

#include <cstdint>

#include "attention/band.h"
#include "sparsek/block_mask.h"

namespace sparsek::attn {

/// A block of a list, or absent (kv_block < 0).
struct ListedBlock {
  std::int64_t kv_block = -1;
  std::int64_t bitmap = -1;  // -1: full
};

/// The entries of list `r`: positions [begin, end) of BlockMaskView::indices, clamped to what the
/// arrays hold; begin <= end.
struct ListRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Of the lists' heads, the one for query head `head` of `num_q_heads`: each serves as many.
SPARSEK_HOST_DEVICE inline std::int32_t list_head(const BlockMaskView& mask, std::int64_t head,
                                                  std::int64_t num_q_heads) {
  const std::int32_t served =
      static_cast<std::int32_t>(num_q_heads) / static_cast<std::int32_t>(mask.num_heads);
  return static_cast<std::int32_t>(head) / served;
}

SPARSEK_HOST_DEVICE inline std::int64_t list_number(const BlockMaskView& mask, std::int64_t batch,
                                                    std::int64_t head, std::int64_t num_q_heads,
                                                    std::int64_t q_block) {
  const std::int64_t b = mask.num_batches == 1 ? 0 : batch;
  const std::int64_t h = list_head(mask, head, num_q_heads);
  const std::int64_t nq = (mask.q_len + mask.q_block - 1) / mask.q_block;
  return (b * mask.num_heads + h) * nq + q_block;
}

SPARSEK_HOST_DEVICE inline ListRange list_range(const BlockMaskView& mask, std::int64_t list) {
  if (mask.counts != nullptr) {
    std::int64_t count = mask.counts[list];
    if (count < 0) count = 0;
    if (count > mask.max_count) count = mask.max_count;
    return {list * mask.max_count, list * mask.max_count + count};
  }
  std::int64_t begin = mask.offsets[list];
  std::int64_t end = mask.offsets[list + 1];
  if (begin < 0) begin = 0;
  if (end > mask.num_indices) end = mask.num_indices;
  return {begin, end < begin ? begin : end};
}

/// `num_kv_blocks`: of the mask.
SPARSEK_HOST_DEVICE inline ListedBlock listed_block(const BlockMaskView& mask, std::int64_t entry,
                                                    std::int64_t num_kv_blocks) {
  const std::int64_t kv_block = mask.indices[entry];
  if (kv_block < 0 || kv_block >= num_kv_blocks) return {};
  std::int64_t bitmap = -1;
  if (mask.bitmap_indices != nullptr) {
    bitmap = mask.bitmap_indices[entry];
    if (bitmap < -1 || bitmap >= mask.num_bitmaps) return {};
  }
  return {kv_block, bitmap};
}

SPARSEK_HOST_DEVICE inline ListedBlock listed_block(const BlockMaskView& mask, std::int64_t entry) {
  return listed_block(mask, entry, (mask.kv_len + mask.kv_block - 1) / mask.kv_block);
}

/// Words of one bitmap row.
SPARSEK_HOST_DEVICE inline std::int64_t bitmap_words(const BlockMaskView& mask) {
  return (mask.kv_block + 31) / 32;
}

/// A word's `count` lowest bits: none below 0, all from 32 on.
SPARSEK_HOST_DEVICE inline std::uint32_t lowest_bits(std::int32_t count) {
  return count <= 0 ? 0u : count >= 32 ? ~0u : (1u << count) - 1;
}

/// The bits of query `row` of the block (0 <= row < q_block).
SPARSEK_HOST_DEVICE inline const std::uint32_t* bitmap_row(const BlockMaskView& mask,
                                                           std::int64_t bitmap, std::int64_t row) {
  return mask.bitmaps + (bitmap * mask.q_block + row) * bitmap_words(mask);
}

}  // namespace sparsek::attn
