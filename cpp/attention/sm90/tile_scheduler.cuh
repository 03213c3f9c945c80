#pragma once

#include "attention/sm90/schedule.h"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Hands out q tiles to the teams of all CTAs: after a first one of its own for each team the next
/// one to whoever asks, or each team its own ones. Lane 0 asks.
///   kTeams         of a CTA, that are given tiles of their own
///   kKeepsRounds   of equal tiles, which may wait for each other
///   kKeepsStep     the teams of a round may
template <int kTeams, bool kKeepsRounds, bool kKeepsStep>
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
      if (kKeepsRounds && schedule_.progress->together != 0) mode_ = kTogether;
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
    if constexpr (kKeepsRounds) {
      tile.asked = mode_ == kTogether ? static_cast<std::uint32_t>(num_teams() * (round_ - 1)) : 0;
    }
    if constexpr (kKeepsStep) {
      tile.of_round = min(num_teams(), schedule_.num_tiles - num_teams() * (round_ - 1));
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

}  // namespace sparsek::attn::sm90
