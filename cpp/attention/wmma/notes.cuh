#pragma once

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/wmma/config.h"
#include "attention/wmma/params.h"

namespace sparsek::attn::wmma {

constexpr std::int32_t kAbsent = 0x7fffff00;  // no key

/// 16 keys of a tile.
struct Granule {
  std::int32_t key;    // the first, or kAbsent
  std::int32_t shift;  // of its bits in their word
  std::int64_t word;   // of the q tile's first row in BlockMaskView::bitmaps; -1: full
};

/// What a tile of a list holds.
template <int kGranules>
struct TileNote {
  std::int32_t begin, end;  // its keys lie in this range
  bool exists;              // else the list has ended
  bool plain;               // all keys are there, and no block has a bitmap
  Granule granules[kGranules];
};

/// A list on its way from memory to the tiles.
struct BlockQueue {
  static constexpr int kCapacity = 64;  // of a tile's granules, and 32 entries more
  std::int64_t first_entry;
  std::int64_t num_entries;
  std::uint32_t num_read;     // entries of the list
  std::uint32_t num_queued;   // blocks
  std::uint32_t num_written;  // granules
  std::int32_t key[kCapacity];  // the block's first
  std::int32_t bitmap[kCapacity];
};

/// Reads a q tile's list, one tile of keys after the other. Used by one warp, which has a q tile of
/// its own to compute: what it remembers is in shared memory.
template <class C>
class NoteWriter {
 public:
  using Note = TileNote<C::kGranules>;

  __device__ __forceinline__ NoteWriter(const Params& params, BlockQueue& queue)
      : params_(params), queue_(queue) {}

  __device__ __forceinline__ void begin(const ListRange& list) {
    if (lane() == 0) {
      queue_.first_entry = list.begin;
      queue_.num_entries = list.end - list.begin;
      queue_.num_read = queue_.num_queued = queue_.num_written = 0;
    }
    __syncwarp();
  }

  /// False when the list has ended. Blocks that lie outside `visible` are left out.
  __device__ __forceinline__ bool write(Note& note, const KeyRange& visible,
                                        std::int32_t row_in_block) {
    const auto per_block = static_cast<std::uint32_t>(params_.granules_in_block);
    const std::uint32_t num_written = queue_.num_written;
    while (queue_.num_queued * per_block - num_written < C::kGranules &&
           queue_.num_read < queue_.num_entries) {
      fill(visible);
    }
    const std::uint32_t available = queue_.num_queued * per_block - num_written;
    const bool mine = lane() < C::kGranules;
    const bool present = mine && lane() < available;
    Granule granule{kAbsent, 0, -1};
    bool partial = false;
    if (present) {
      const std::uint32_t place = num_written + lane();
      const std::uint32_t slot = place / per_block % BlockQueue::kCapacity;
      const auto column = static_cast<std::int32_t>(place % per_block) * kGranule;
      const std::int64_t bitmap = queue_.bitmap[slot];
      granule.key = queue_.key[slot] + column;
      partial = bitmap >= 0;
      if (partial) {
        const BlockMaskView& mask = params_.mask;
        granule.shift = column % 32;
        granule.word = (bitmap * mask.q_block + row_in_block) * bitmap_words(mask) + column / 32;
      }
    }
    if (mine) note.granules[lane()] = granule;
    const bool plain = !__any_sync(~0u, mine && (!present || partial));
    const std::int32_t begin = __reduce_min_sync(~0u, granule.key);
    const std::int32_t end = __reduce_max_sync(~0u, present ? granule.key + kGranule : 0);
    if (lane() == 0) {
      note.begin = begin;
      note.end = end;
      note.plain = plain;
      note.exists = available > 0;
      queue_.num_written =
          num_written + min(available, static_cast<std::uint32_t>(C::kGranules));
    }
    __syncwarp();
    return available > 0;
  }

 private:
  __device__ __forceinline__ static std::uint32_t lane() { return threadIdx.x % 32; }

  /// Looks at 32 entries more.
  __device__ __forceinline__ void fill(const KeyRange& visible) {
    const std::uint32_t num_read = queue_.num_read, num_queued = queue_.num_queued;
    const std::int64_t place = std::int64_t{num_read} + lane();
    const ListedBlock block = place < queue_.num_entries
                                  ? listed_block(params_.mask, queue_.first_entry + place)
                                  : ListedBlock{};
    const auto size = static_cast<std::int32_t>(params_.mask.kv_block);
    const auto key = static_cast<std::int32_t>(block.kv_block) * size;
    const bool wanted = block.kv_block >= 0 && meets(visible, key, key + size);
    const std::uint32_t votes = __ballot_sync(~0u, wanted);
    if (wanted) {
      const std::uint32_t before = __popc(votes & ((1u << lane()) - 1));
      const std::uint32_t slot = (num_queued + before) % BlockQueue::kCapacity;
      queue_.key[slot] = key;
      queue_.bitmap[slot] = static_cast<std::int32_t>(block.bitmap);
    }
    if (lane() == 0) {
      queue_.num_queued = num_queued + __popc(votes);
      queue_.num_read = num_read + 32;
    }
    __syncwarp();
  }

  const Params& params_;
  BlockQueue& queue_;
};

}  // namespace sparsek::attn::wmma
