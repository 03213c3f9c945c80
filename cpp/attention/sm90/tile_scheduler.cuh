#pragma once

#include "attention/sm90/schedule.h"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Hands out q tiles to the teams of all CTAs: after a first one of its own for each team the next
/// one to whoever asks, or each team its own ones. Lane 0 asks.
///   kTeams          of a CTA, that are given tiles of their own
///   kKeepsTogether  rounds of equal tiles may wait for each other
template <int kTeams, bool kKeepsTogether>
class TileScheduler {
 public:
  __device__ __forceinline__ TileScheduler(const Schedule& schedule, std::int32_t team)
      : schedule_(schedule), team_(team) {}

  /// False when none is left.
  template <bool kShares>
  __device__ __forceinline__ bool next(QTile& tile) {
    if (round_ == 1 && schedule_.progress != nullptr) {
      ptx::griddepcontrol_wait();  // for the kernel that sets it
      if (schedule_.progress->in_use != 0) mode_ = kCounted;
      if (kKeepsTogether && schedule_.progress->together != 0) mode_ = kTogether;
    }
    if (mode_ == kTogether) atomicAdd(&schedule_.progress->asked, 1u);
    std::int32_t place = mode_ == kCounted
                             ? atomicAdd(&schedule_.progress->next, 1)
                             : place_of(round_, team_ * num_ctas() + cta(), num_teams());
    const std::int32_t round = mode_ == kCounted ? place / num_teams() : round_;
    ++round_;
    const bool backward = schedule_.alternate && round % 2 != 0;
    std::int32_t part = -1;
    if constexpr (kShares) {
      // Behind the tiles that are taken whole, the parts of the others.
      const Shares& shares = schedule_.shares;
      const std::int32_t whole = schedule_.num_tiles - shares.tiles;
      if (mode_ != kCounted && place >= whole) {
        part = place - whole;
        if (part >= num_parts(shares)) return false;
        place = whole + tile_of_part(shares, part);
      }
    }
    if (place >= schedule_.num_tiles) return false;
    if (mode_ == kCounted && schedule_.order != nullptr) place = schedule_.order[place];
    tile = tile_at(schedule_, place);
    tile.backward = backward;
    tile.part = part;
    if constexpr (kKeepsTogether) {
      tile.asked = mode_ == kTogether ? static_cast<std::uint32_t>(num_teams() * (round_ - 1)) : 0;
    }
    return true;
  }

 private:
  // Asked anew each time: registers are short.
  __device__ __forceinline__ static std::int32_t cta() { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ static std::int32_t num_ctas() { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ static std::int32_t num_teams() { return kTeams * num_ctas(); }

  const Schedule& schedule_;
  std::int32_t team_;
  // Each team its own tiles, or the next one from the counter, or its own and all of a round
  // together.
  std::int32_t mode_ = kOwn;
  static constexpr std::int32_t kOwn = 0, kCounted = 1, kTogether = 2;
  std::int32_t round_ = 0;
};

/// Keeps rounds together: before a tile the whole warp waits until all teams have asked for theirs
/// of the same round, as they do when the tile before comes to its end. Teams that drift apart each
/// read another part of the keys that L2 cannot hold all of. Who has waited for some 60 us does so
/// no more: a CTA that does not come may have found no SM.
class RoundKeeper {
 public:
  /// In a loop of one lane ptxas lost sight of the warp's being together: each list took 1 %
  /// longer.
  __device__ __forceinline__ void wait(const Schedule& schedule, std::uint32_t asked) {
    if (asked == 0) return;
#pragma unroll 1
    for (; looks_left_ > 0; --looks_left_) {
      const bool waits = threadIdx.x % 32 == 0 && have_asked(*schedule.progress) - asked > kHalf;
      if (!__any_sync(~0u, waits)) {
        looks_left_ = kMostLooks;
        return;
      }
      __nanosleep(200);
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t have_asked(const Progress& progress) {
    return ptx::load_relaxed(&progress.asked);
  }

  static constexpr std::uint32_t kHalf = 0x7fffffff;  // the count may wrap
  static constexpr int kMostLooks = 64;
  int looks_left_ = kMostLooks;
};

}  // namespace sparsek::attn::sm90
