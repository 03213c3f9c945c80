#pragma once

#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE
#include "attention/block_lists.h"

namespace sparsek::attn::sm90 {

/// Tiles with lists, the last ones of a schedule, that are at most half as many as the teams
/// waiting for one: those of the last round, or all that there are. Each has `parts` teams, which
/// write an output and an lse, and a second kernel weighs them (shared_parts.h).
struct Shares {
  std::int32_t tiles = 0;
  std::int32_t parts = 0;  // of each tile
};

// Part i of all is the (i % parts)-th of tile i / parts, and team i's.

SPARSEK_HOST_DEVICE inline std::int32_t num_parts(const Shares& shares) {
  return shares.tiles * shares.parts;
}
SPARSEK_HOST_DEVICE inline std::int32_t tile_of_part(const Shares& shares, std::int32_t part) {
  return part / shares.parts;
}

/// What part `part` of all has of its tile's list; those of a tile differ by one entry at most.
SPARSEK_HOST_DEVICE inline ListRange share_of(const ListRange& list, const Shares& shares,
                                              std::int32_t part) {
  const std::int64_t listed = list.end - list.begin;
  const auto entries = static_cast<std::int32_t>(listed < 0x7fffffff ? listed : 0x7fffffff);
  const std::int32_t of_tile = part % shares.parts;
  const std::int32_t each = entries / shares.parts, more = entries % shares.parts;
  const std::int64_t begin = list.begin + each * of_tile + (of_tile < more ? of_tile : more);
  return {begin, begin + each + (of_tile < more ? 1 : 0)};
}

}  // namespace sparsek::attn::sm90
