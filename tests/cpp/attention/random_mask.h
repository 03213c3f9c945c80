#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/block_lists.h"
#include "random_array.h"
#include "sparsek/block_mask.h"

/// A mask that owns its arrays.
struct OwnedMask {
  sparsek::BlockMaskView view;
  std::vector<std::int32_t> indices, counts, bitmap_indices;
  std::vector<std::int64_t> offsets;
  std::vector<std::uint32_t> bitmaps;

  OwnedMask() = default;
  OwnedMask(const OwnedMask&) = delete;
};

struct MaskCase {
  std::int64_t q_len, kv_len, q_block, kv_block;
  std::int64_t num_batches = 1, num_heads = 1;
  double density = 0.4;
  bool padded = false;
  bool bitmaps = false;
};

/// Lists in random order, each block at most once; about half of the blocks partial with `bitmaps`.
inline void make_random_mask(const MaskCase& c, OwnedMask* mask) {
  sparsek::BlockMaskView& view = mask->view;
  view.q_len = c.q_len;
  view.kv_len = c.kv_len;
  view.q_block = c.q_block;
  view.kv_block = c.kv_block;
  view.num_batches = c.num_batches;
  view.num_heads = c.num_heads;
  view.max_count = c.padded ? view.num_kv_blocks() + 1 : 0;
  mask->offsets.push_back(0);
  for (std::int64_t list = 0; list < view.num_lists(); ++list) {
    std::vector<std::int32_t> blocks;
    for (std::int64_t block = 0; block < view.num_kv_blocks(); ++block) {
      if (random_bool(c.density)) blocks.push_back(static_cast<std::int32_t>(block));
    }
    std::shuffle(blocks.begin(), blocks.end(), generator());
    mask->counts.push_back(static_cast<std::int32_t>(blocks.size()));
    if (c.padded) blocks.resize(static_cast<std::size_t>(view.max_count), 123456789);
    mask->indices.insert(mask->indices.end(), blocks.begin(), blocks.end());
    mask->offsets.push_back(static_cast<std::int64_t>(mask->indices.size()));
  }
  if (c.bitmaps) {
    for (std::size_t i = 0; i < mask->indices.size(); ++i) {
      mask->bitmap_indices.push_back(
          random_bool(0.5) ? static_cast<std::int32_t>(view.num_bitmaps++) : -1);
    }
    const std::int64_t words = (c.kv_block + 31) / 32;
    for (std::int64_t i = 0; i < view.num_bitmaps * c.q_block * words; ++i) {
      mask->bitmaps.push_back(static_cast<std::uint32_t>(generator()()));
    }
    view.bitmap_indices = mask->bitmap_indices.data();
    view.bitmaps = mask->bitmaps.data();
  }
  view.indices = mask->indices.data();
  view.num_indices = static_cast<std::int64_t>(mask->indices.size());
  view.counts = c.padded ? mask->counts.data() : nullptr;
  view.offsets = c.padded ? nullptr : mask->offsets.data();
}

/// (q_len, kv_len) for one batch and head, straight from the comment in block_mask.h.
inline std::vector<bool> mask_to_dense(const OwnedMask& mask, std::int64_t batch,
                                       std::int64_t head) {
  const sparsek::BlockMaskView& view = mask.view;
  std::vector<bool> dense(static_cast<std::size_t>(view.q_len * view.kv_len), false);
  for (std::int64_t q_block = 0; q_block < view.num_q_blocks(); ++q_block) {
    const std::int64_t b = view.num_batches == 1 ? 0 : batch, h = view.num_heads == 1 ? 0 : head;
    const std::int64_t list = (b * view.num_heads + h) * view.num_q_blocks() + q_block;
    const std::int64_t begin = view.counts ? list * view.max_count : mask.offsets[list];
    const std::int64_t count = mask.counts[list];
    for (std::int64_t entry = begin; entry < begin + count; ++entry) {
      for (std::int64_t i = 0; i < view.q_block; ++i) {
        for (std::int64_t j = 0; j < view.kv_block; ++j) {
          const std::int64_t query = q_block * view.q_block + i,
                             key = mask.indices[entry] * view.kv_block + j;
          if (query >= view.q_len || key >= view.kv_len) continue;
          bool bit = true;
          if (view.bitmap_indices && mask.bitmap_indices[entry] >= 0) {
            const std::int64_t words = (view.kv_block + 31) / 32;
            const std::int64_t row = mask.bitmap_indices[entry] * view.q_block + i;
            bit = mask.bitmaps[row * words + j / 32] >> (j % 32) & 1;
          }
          if (bit) dense[query * view.kv_len + key] = true;
        }
      }
    }
  }
  return dense;
}
