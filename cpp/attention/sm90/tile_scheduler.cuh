#pragma once

#include "attention/sm90/schedule.h"

namespace sparsek::attn::sm90 {

/// Hands out q tiles to the CTAs. One lane asks.
struct TileScheduler {
  const Schedule& schedule;
  std::int32_t round = 0;

  /// False when none is left.
  __device__ __forceinline__ bool next(QTile& tile) {
    const std::int32_t place = place_of(round++, blockIdx.x, gridDim.x);
    if (place >= schedule.num_tiles) return false;
    tile = tile_at(schedule, place);
    return true;
  }
};

}  // namespace sparsek::attn::sm90
