#pragma once

#include "attention/sm90/schedule.h"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Hands out q tiles to the teams of all CTAs: after a first one of its own for each team the next
/// one to whoever asks, or each team its own ones. One lane asks.
class TileScheduler {
 public:
  __device__ __forceinline__ TileScheduler(const Schedule& schedule, std::int32_t team,
                                           std::int32_t num_teams)
      : schedule_(schedule), team_(team), num_teams_(num_teams) {}

  /// False when none is left.
  template <bool kShares>
  __device__ __forceinline__ bool next(QTile& tile) {
    if (round_ == 1 && schedule_.progress != nullptr) {
      ptx::griddepcontrol_wait();  // for the kernel that sets it
      counted_ = schedule_.progress->in_use != 0;
    }
    std::int32_t place =
        counted_ ? atomicAdd(&schedule_.progress->next, 1) : place_of(round_, team_, num_teams_);
    const std::int32_t round = counted_ ? place / num_teams_ : round_;
    ++round_;
    const bool backward = schedule_.alternate && round % 2 != 0;
    std::int32_t part = -1;
    if constexpr (kShares) {
      // Behind the tiles that are taken whole, the parts of the others.
      const Shares& shares = schedule_.shares;
      const std::int32_t whole = schedule_.num_tiles - shares.tiles;
      if (!counted_ && place >= whole) {
        part = place - whole;
        if (part >= num_parts(shares)) return false;
        place = whole + tile_of_part(shares, part);
      }
    }
    if (place >= schedule_.num_tiles) return false;
    if (counted_ && schedule_.order != nullptr) place = schedule_.order[place];
    tile = tile_at(schedule_, place);
    tile.backward = backward;
    tile.part = part;
    return true;
  }

 private:
  const Schedule& schedule_;
  std::int32_t team_;
  std::int32_t num_teams_;
  bool counted_ = false;
  std::int32_t round_ = 0;
};

}  // namespace sparsek::attn::sm90
