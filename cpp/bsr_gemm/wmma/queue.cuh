#pragma once

#include "bsr_gemm/wmma/tiles.cuh"

namespace sparsek::bsr::wmma {

/// Where 16 of k lie in the operands, in bytes.
struct GranulePlace {
  std::int64_t left;
  std::int64_t right;
};

struct QueueStorage {
  GranulePlace granules[kQueueGranules + 16];  // those past the end are looked at, and not used
  std::int32_t in_warp[32];
  // Of the walk, from fill to fill: registers are scarce.
  std::int64_t next;
  std::int64_t end;
};

/// The blocks that a tile multiplies, some hundred of k at a time. Used by the whole CTA.
template <class C>
class Queue {
 public:
  __device__ __forceinline__ Queue(const Params& params, const Tile& tile, QueueStorage& storage)
      : p_(params), tile_(tile), storage_(storage) {}

  /// Called by one thread.
  __device__ __forceinline__ void begin() {
    EntryRange range;
    if (p_.walk == Walk::all) {
      range.end = (p_.k + kGranule - 1) / kGranule;
    } else if (p_.walk == Walk::column) {
      range.end = p_.lists.num_block_rows;
    } else {
      range = row_entries(p_.lists, tile_.block_row);
    }
    storage_.next = range.begin;
    storage_.end = range.end;
  }

  /// Fills the queue with what comes next; how much of k that is.
  __device__ __forceinline__ std::int32_t fill() {
    const std::int64_t end = storage_.end;
    std::int64_t next = storage_.next;
    if (p_.walk == Walk::all) return fill_all(next, end);
    const std::int32_t per_block = p_.block_k / kGranule;
    const std::int32_t capacity = kQueueGranules / per_block;
    std::int32_t queued = 0;
    while (next < end && queued < capacity) {
      const std::int64_t round =
          min(min(std::int64_t{C::kThreads}, end - next), std::int64_t{capacity - queued});
      Match match;
      if (threadIdx.x < round) match = match_at(next + threadIdx.x);
      queued += append(match, queued, per_block);
      next += round;
    }
    __syncthreads();
    if (threadIdx.x == 0) storage_.next = next;
    return queued * p_.block_k;
  }

  /// After fill and a barrier: whether that was the last of it.
  __device__ __forceinline__ bool at_end() const { return storage_.next >= storage_.end; }

 private:
  struct Match {
    std::int32_t left = kAbsent;  // blocks of values
    std::int32_t right = kAbsent;
    std::int64_t k_block = 0;
  };

  __device__ __forceinline__ std::int32_t fill_all(std::int64_t next, std::int64_t end) {
    const auto count = static_cast<std::int32_t>(min(std::int64_t{kQueueGranules}, end - next));
    for (std::int32_t i = threadIdx.x; i < count; i += C::kThreads) {
      const std::int64_t k = (next + i) * kGranule;
      storage_.granules[i] = {2 * k * p_.left.k_stride, 2 * k * p_.right.k_stride};
    }
    __syncthreads();  // everybody has read where it was
    if (threadIdx.x == 0) storage_.next = next + count;
    const std::int64_t length = min(std::int64_t{count} * kGranule, p_.k - next * kGranule);
    return static_cast<std::int32_t>(max(length, std::int64_t{0}));
  }

  __device__ __forceinline__ Match match_at(std::int64_t place) const {
    Match match;
    if (p_.walk == Walk::column) {
      match.k_block = place;
      match.left = find_block(p_.lists, place, tile_.block_row);
      return match;
    }
    const std::int64_t k_block = p_.lists.col_indices[place];
    if (k_block < 0 || k_block >= p_.lists.num_block_cols) return match;
    match.k_block = k_block;
    match.left = value_of(p_.lists, place);
    if (p_.walk == Walk::row_match) {
      match.right = find_block(p_.right_lists, k_block, tile_.block_col);
      if (match.right == kAbsent) match.left = kAbsent;
    }
    return match;
  }

  /// In the order of the threads; how many there are.
  __device__ __forceinline__ std::int32_t append(const Match& match, std::int32_t queued,
                                                 std::int32_t per_block) {
    const bool present = match.left != kAbsent;
    const std::uint32_t votes = __ballot_sync(~0u, present);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) storage_.in_warp[warp] = __popc(votes);
    __syncthreads();
    std::int32_t total = 0;
    std::int32_t slot = queued + __popc(votes & ((1u << threadIdx.x % 32) - 1));
    for (int w = 0; w < C::kThreads / 32; ++w) {
      if (w < warp) slot += storage_.in_warp[w];
      total += storage_.in_warp[w];
    }
    if (present) {
      const std::int64_t left = match.left * p_.left.block_stride;
      const std::int64_t right = p_.walk == Walk::row_match
                                     ? match.right * p_.right.block_stride
                                     : match.k_block * p_.block_k * p_.right.k_stride;
      for (std::int32_t i = 0; i < per_block; ++i) {
        storage_.granules[slot * per_block + i] = {2 * (left + i * kGranule * p_.left.k_stride),
                                                   2 * (right + i * kGranule * p_.right.k_stride)};
      }
    }
    __syncthreads();  // in_warp has been read
    return total;
  }

  const Params& p_;
  const Tile& tile_;
  QueueStorage& storage_;
};

}  // namespace sparsek::bsr::wmma
