#pragma once

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/wmma/config.h"
#include "attention/wmma/params.h"

namespace sparsek::attn::wmma {

constexpr std::int32_t kAbsent = 0x7fffff00;  // no key

/// 16 keys of a tile, of which those behind the end of their block count as absent.
struct Granule {
  std::int32_t key;     // the first, or kAbsent
  std::int32_t bitmap;  // of its block; -1: full
  std::int32_t column;  // of the first key in its block
};

/// The first key of a block.
struct QueuedBlock {
  std::int32_t key;
  std::int32_t bitmap;
};

/// What a tile of a list holds.
struct TileNote {
  std::int32_t begin, end;  // its keys lie in this range
  bool exists;              // else the list has ended
  bool plain;               // all keys are there and in their blocks, and no block has a bitmap
};

/// The notes of the tiles at hand, and a list on its way from memory to them.
template <class C>
struct Notes {
  static constexpr int kBatchGranules = 16;
  static constexpr int kBatch = kBatchGranules / C::kGranules;  // tiles that are noted at once
  static constexpr int kQueue = kBatchGranules + 32;  // what a batch takes, and 32 entries more
  static_assert(kBatchGranules % C::kGranules == 0 && kBatchGranules <= 32, "a lane for each");

  __device__ __forceinline__ const Granule* granules_of(int tile) const {
    return &granules[tile % (2 * kBatch) * C::kGranules];
  }
  __device__ __forceinline__ const TileNote& operator[](int tile) const {
    return tiles[tile % (2 * kBatch)];
  }

  Granule granules[2 * kBatchGranules];
  TileNote tiles[2 * kBatch];
  std::int64_t first_entry;
  std::int64_t num_entries;
  std::uint32_t num_read;     // entries of the list
  std::uint32_t num_queued;   // blocks
  std::uint32_t num_written;  // granules
  QueuedBlock queue[kQueue];
};

/// Reads a q tile's list, a batch of tiles at a time. Used by one warp, which has queries of its
/// own to compute: what it remembers is in shared memory.
template <class C>
class NoteWriter {
 public:
  using N = Notes<C>;

  __device__ __forceinline__ NoteWriter(const Params& params, N& notes)
      : params_(params), notes_(notes) {}

  __device__ __forceinline__ void begin(const ListRange& list) {
    if (lane() == 0) {
      notes_.first_entry = list.begin;
      notes_.num_entries = list.end - list.begin;
      notes_.num_read = notes_.num_queued = notes_.num_written = 0;
    }
    __syncwarp();
  }

  /// From tile `first` on, a multiple of the batch. Blocks that lie outside `visible` are left out.
  __device__ __forceinline__ void write(int first, const KeyRange& visible) {
    const auto per_block = static_cast<std::uint32_t>(params_.granules_in_block);
    const std::uint32_t num_written = notes_.num_written;
    while (notes_.num_queued * per_block - num_written < N::kBatchGranules &&
           notes_.num_read < notes_.num_entries) {
      fill(visible);
    }
    const std::uint32_t available = notes_.num_queued * per_block - num_written;
    const bool present = lane() < N::kBatchGranules && lane() < available;
    Granule granule{kAbsent, -1, 0};
    if (present) {
      const std::uint32_t place = num_written + lane();
      const QueuedBlock block = notes_.queue[place / per_block % N::kQueue];
      const auto column = static_cast<std::int32_t>(place % per_block) * kGranule;
      granule = {block.key + column, block.bitmap, column};
    }
    // Over the lanes of a tile; those past the batch's granules take part and are not written.
    std::int32_t begin = present ? granule.key : 0x7fffffff;
    std::int32_t end = present ? granule.key + kGranule : 0;
    int plain = present && granule.bitmap < 0 && granule.column + kGranule <= params_.kv_block;
#pragma unroll
    for (int step = 1; step < C::kGranules; step *= 2) {
      begin = min(begin, __shfl_xor_sync(~0u, begin, step));
      end = max(end, __shfl_xor_sync(~0u, end, step));
      plain &= __shfl_xor_sync(~0u, plain, step);
    }
    const int slot = first % (2 * N::kBatch);
    if (lane() < N::kBatchGranules) {
      notes_.granules[slot * C::kGranules + lane()] = granule;
      if (lane() % C::kGranules == 0) {
        notes_.tiles[slot + lane() / C::kGranules] = {begin, end, end > 0, plain != 0};
      }
    }
    __syncwarp();  // all lanes have read what lane 0 writes
    if (lane() == 0) {
      notes_.num_written =
          num_written + min(available, static_cast<std::uint32_t>(N::kBatchGranules));
    }
    __syncwarp();
  }

 private:
  static_assert((C::kGranules & (C::kGranules - 1)) == 0);

  __device__ __forceinline__ static std::uint32_t lane() { return threadIdx.x % 32; }

  /// Looks at 32 entries more.
  __device__ __forceinline__ void fill(const KeyRange& visible) {
    const std::uint32_t num_read = notes_.num_read, num_queued = notes_.num_queued;
    const std::int64_t place = std::int64_t{num_read} + lane();
    const ListedBlock block = place < notes_.num_entries
                                  ? listed_block(params_.mask, notes_.first_entry + place)
                                  : ListedBlock{};
    const auto key = static_cast<std::int32_t>(block.kv_block) * params_.kv_block;
    const bool wanted = block.kv_block >= 0 && meets(visible, key, key + params_.kv_block);
    const std::uint32_t votes = __ballot_sync(~0u, wanted);
    if (wanted) {
      const std::uint32_t before = __popc(votes & ((1u << lane()) - 1));
      notes_.queue[(num_queued + before) % N::kQueue] = {key,
                                                         static_cast<std::int32_t>(block.bitmap)};
    }
    __syncwarp();
    if (lane() == 0) {
      notes_.num_queued = num_queued + __popc(votes);
      notes_.num_read = num_read + 32;
    }
    __syncwarp();
  }

  const Params& params_;
  N& notes_;
};

}  // namespace sparsek::attn::wmma
