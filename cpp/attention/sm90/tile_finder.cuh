#pragma once

#include "attention/sm90/block_stream.cuh"
#include "attention/sm90/tile_scheduler.cuh"

namespace sparsek::attn::sm90 {

/// Finds a team's q tiles and reads the beginnings of their lists. Used by a whole warp.
template <class Element, class C>
class TileFinder {
 public:
  __device__ __forceinline__ TileFinder(const Params& params, Storage<Element, C>& storage,
                                        int team)
      : params_(params), storage_(storage), scheduler_(params.schedule, C::kJoins ? 0 : team) {}

  /// Finds the next q tile and leaves the beginning of its list in storage.next_list. False where
  /// none is left.
  __device__ __forceinline__ bool find(QTile& tile) {
    bool found = false;
    if (lane() == 0) found = scheduler_.template next<C::kShares>(tile);
    found = __shfl_sync(~0u, found, 0);
    tile.q_tile = __shfl_sync(~0u, tile.q_tile, 0);
    tile.head = __shfl_sync(~0u, tile.head, 0);
    tile.batch = __shfl_sync(~0u, tile.batch, 0);
    if constexpr (C::kShares) tile.part = __shfl_sync(~0u, tile.part, 0);
    if constexpr (C::kKeepsStep) tile.of_round = __shfl_sync(~0u, tile.of_round, 0);
    if constexpr (C::kLists) {
      tile.asked = __shfl_sync(~0u, tile.asked, 0);
      tile.backward = __shfl_sync(~0u, tile.backward, 0);
      if (found) read_list_head(tile);
    }
    return found;
  }

 private:
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ void read_list_head(const QTile& tile) {
    __syncwarp();  // the tile before has read its own
    const BlockMaskView& mask = params_.mask;
    const std::int32_t q_tile = C::kPacks ? 0 : tile.q_tile;
    ListRange range = list_range(mask, params_.lists.list_number(tile.batch, tile.head, q_tile));
    if (tile.part >= 0) range = share_of(range, params_.schedule.shares, tile.part);
    ListHead& head = storage_.next_list;
    const auto num_entries =
        static_cast<std::int32_t>(min(range.end - range.begin, std::int64_t{kMostEntries}));
    if (lane() == 0) {
      head.end = tile.backward ? range.begin - 1 : range.begin + num_entries;
      head.step = tile.backward ? -1 : 1;
      head.num_entries = num_entries;
    }
    __syncwarp();
    const Entry entry = read_entry(params_, head.place(num_entries - lane()), lane() < num_entries);
    head.key[lane()] = entry.key;
    head.bitmap[lane()] = entry.bitmap;
    __syncwarp();
  }

  const Params& params_;
  Storage<Element, C>& storage_;
  TileScheduler<C::kTilesAtATime, C::kLists, C::kKeepsStep> scheduler_;
};

/// A team's scout warp: finds q tiles while the producer warp goes on with the one before, one
/// ahead of it and not before it asks.
template <class Element, class C>
__device__ __forceinline__ void scout(const Params& params, Storage<Element, C>& storage,
                                      int team) {
  TileFinder<Element, C> finder(params, storage, team);
  RingState<1> state;
  NextTile next;
  do {
    storage.ring_next.wait_empty(state);
    next.found = finder.find(next.tile);
    if (threadIdx.x % 32 == 0) storage.next = next;
    storage.ring_next.arrive_full(state);
    state.advance();
  } while (next.found);
}

}  // namespace sparsek::attn::sm90
