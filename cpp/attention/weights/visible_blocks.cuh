#pragma once

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/weights/storage.cuh"

namespace sparsek::attn::weights {

enum class Seen { none, some, all };

/// A tile of keys in shared memory.
struct KeyTile {
  const unsigned char* k;
  std::int32_t key;  // the first
  Seen seen;
  const std::int32_t* entries;  // of a list, of each key
};

/// What a q tile may see of a tile of keys: causal, window, and the list of its q block. All
/// threads of a CTA ask together. A list, in whatever order, is written to a table of a window's kv
/// blocks: 0 absent, 1 full, 2 and more the bitmap.
template <class C>
class VisibleBlocks {
 public:
  __device__ __forceinline__ VisibleBlocks(const Params& params, const Work& work,
                                           std::int32_t* table)
      : p_(params), work_(work), table_(table) {
    if (!p_.lists) return;
    list_ = list_range(p_.mask, list_number(p_.mask, work.batch, work.head, p_.num_heads,
                                            work.q_begin / p_.q_block));
  }

  /// The tile of keys from `key` on; tiles are asked for in order. With lists, `entries` gets that
  /// of each key.
  __device__ Seen ask(std::int32_t key, std::int32_t* entries) {
    const std::int32_t end = key + C::kTileKv;
    if (!meets(visible_keys(p_.band, work_.q_begin, work_.q_end), key, end)) return Seen::none;
    bool all = contains(shared_keys(p_.band, work_.q_begin, work_.q_end), key, end);
    if (p_.lists) {
      if (key >= window_end_) look_up(key);
      std::int32_t entry = -1;
      if (threadIdx.x < C::kTileKv) {
        const std::int32_t mine = key + static_cast<std::int32_t>(threadIdx.x);
        entry = mine < p_.band.kv_len ? table_[mine / p_.kv_block - first_] : 0;
        entries[threadIdx.x] = entry;
      }
      if (!__syncthreads_or(entry > 0)) return Seen::none;
      all = __syncthreads_and(entry == 1 || entry == -1) && all;
    }
    return all ? Seen::all : Seen::some;
  }

 private:
  /// The window from `key` on.
  __device__ void look_up(std::int32_t key) {
    window_end_ = key + kWindow;
    first_ = key / p_.kv_block;
    const auto kv_len = static_cast<std::int32_t>(p_.band.kv_len);
    const std::int32_t last = (min(window_end_, kv_len) - 1) / p_.kv_block;
    __syncthreads();  // nobody reads the window before
    for (int i = threadIdx.x; i <= last - first_; i += C::kThreads) table_[i] = 0;
    __syncthreads();
    for (std::int64_t at = list_.begin + threadIdx.x; at < list_.end; at += C::kThreads) {
      const ListedBlock block = listed_block(p_.mask, at);
      if (block.kv_block < first_ || block.kv_block > last) continue;
      // A block that is listed twice counts once, and the same way in every run.
      const std::int64_t entry = block.bitmap < 0 ? 1 : 2 + block.bitmap;
      atomicMax(&table_[block.kv_block - first_], static_cast<std::int32_t>(entry));
    }
    __syncthreads();
  }

  const Params& p_;
  const Work& work_;
  std::int32_t* table_;
  ListRange list_;
  std::int32_t first_ = 0;  // kv block of the window
  std::int32_t window_end_ = 0;
};

/// Whether the bitmap of an entry lets a query of the tile see a key.
__device__ __forceinline__ bool has_bit(const Params& p, const Work& work, std::int32_t entry,
                                        int tile_row, std::int32_t key) {
  // A row past the tile's end, which may be past the block's, is not stored.
  const int row = work.row_in_block + min(tile_row, work.q_end - work.q_begin - 1);
  const std::int32_t column = key % p.kv_block;
  return bitmap_row(p.mask, entry - 2, row)[column / 32] >> (column % 32) & 1;
}

}  // namespace sparsek::attn::weights
