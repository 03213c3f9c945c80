#pragma once

#include <cstdint>

#include "sparsek/types.h"

namespace sparsek {

/// Which kv blocks each q block may see: for each batch (or all), head and q block a list of kv
/// blocks. The heads are those of q; or those of k, each of whose lists serves the query heads that
/// share it; or one.
///
/// With nq = ceil(q_len / q_block), the list of (b, h, i) is list number
///   r = (b * num_heads + h) * nq + i        (b = 0 if num_batches == 1, h = 0 if num_heads == 1).
///
/// Two forms, read without conversion; exactly one of `offsets` and `counts` is set:
///   compressed: indices[offsets[r]] ... indices[offsets[r + 1] - 1]
///   padded:     indices[r * max_count] ... indices[r * max_count + counts[r] - 1]
///
/// A listed block is full, or partial with one bit per (query, key) pair. `bitmap_indices`, where
/// set, is parallel to `indices`: -1 marks a full block, p >= 0 the p-th bitmap. A bitmap is
/// q_block rows of ceil(kv_block / 32) words; bit (c % 32) of word (c / 32) says whether the row's
/// query may see key c of the block.
///
/// All arrays live on `device`. A block index, count, offset or bitmap index that is out of range
/// counts as absent: garbage in the lists can give wrong answers, never an access outside the
/// arrays. A block listed twice is counted once or twice, as the backend likes: `check_block_mask`
/// refuses it.
struct BlockMaskView {
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t q_block = 0;   // queries in a block
  std::int64_t kv_block = 0;  // keys in a block
  std::int64_t num_batches = 1;
  std::int64_t num_heads = 1;  // of q or of k, or 1
  Device device;

  const std::int32_t* indices = nullptr;
  std::int64_t num_indices = 0;           // entries that `indices` holds, padding included
  const std::int64_t* offsets = nullptr;  // compressed: num_lists() + 1
  const std::int32_t* counts = nullptr;   // padded: num_lists()
  std::int64_t max_count = 0;             // padded: entries reserved for each list

  const std::int32_t* bitmap_indices = nullptr;  // num_indices, or null when every block is full
  const std::uint32_t* bitmaps = nullptr;        // num_bitmaps * q_block * ceil(kv_block / 32)
  std::int64_t num_bitmaps = 0;

  std::int64_t num_q_blocks() const { return (q_len + q_block - 1) / q_block; }
  std::int64_t num_kv_blocks() const { return (kv_len + kv_block - 1) / kv_block; }
  std::int64_t num_lists() const { return num_batches * num_heads * num_q_blocks(); }
};

/// Reads every list of a mask in host memory; throws Error (invalid_value) for an index, count,
/// offset or bitmap index out of range, and for a block listed twice.
void check_block_mask(const BlockMaskView& mask);

}  // namespace sparsek
