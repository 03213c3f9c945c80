#pragma once

#include "attention/sm90/schedule.h"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Waits, as a whole warp, for what all teams count up. Who has waited for some 60 us does so no
/// more: a CTA that does not come may have found no SM.
class Patience {
 public:
  /// In a loop of one lane ptxas lost sight of the warp's being together: each list took 1 %
  /// longer.
  __device__ __forceinline__ void wait(const std::uint32_t* count, std::uint32_t expected) {
#pragma unroll 1
    for (; looks_left_ > 0; --looks_left_) {
      const bool waits = threadIdx.x % 32 == 0 && ptx::load_relaxed(count) - expected > kHalf;
      if (!__any_sync(~0u, waits)) {
        looks_left_ = kMostLooks;
        return;
      }
      __nanosleep(200);
    }
  }

 private:
  static constexpr std::uint32_t kHalf = 0x7fffffff;  // the count may wrap
  static constexpr int kMostLooks = 64;
  int looks_left_ = kMostLooks;
};

/// Keeps rounds together: before a tile a team waits until all have asked for theirs of the same
/// round, as they do when the tile before comes to its end. Teams that drift apart each read
/// another part of the keys that L2 cannot hold all of.
class RoundKeeper {
 public:
  __device__ __forceinline__ void wait(const Schedule& schedule, const QTile& tile) {
    if (tile.asked != 0) patience_.wait(&schedule.progress->asked, tile.asked);
  }

 private:
  Patience patience_;
};

/// Keeps the teams of a round in step while they walk the same keys: none is more than two
/// stretches of a few tiles of keys ahead of another. Each has its own q tiles, so that nothing
/// else ever brings those together that have drifted apart.
class StepKeeper {
 public:
  /// Behind each tile of keys.
  __device__ __forceinline__ void step(const Schedule& schedule, const QTile& tile) {
    if (--steps_left_ != 0 || schedule.stretches == nullptr) return;
    steps_left_ = kStepsOfStretch;
    if (threadIdx.x % 32 == 0) atomicAdd(schedule.stretches, 1u);
    patience_.wait(schedule.stretches, expected_);
    expected_ += static_cast<std::uint32_t>(tile.of_round);
  }

 private:
  static constexpr int kStepsOfStretch = 4;
  int steps_left_ = kStepsOfStretch;
  std::uint32_t expected_ = 0;  // what all have counted when they are where this team was last
  Patience patience_;
};

}  // namespace sparsek::attn::sm90
