#pragma once

#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE
#include "attention/sm90/shares.h"

namespace sparsek::attn::sm90 {

/// Through tiles of unequal length, of which a CTA takes the next one when it is ready.
struct Progress {
  std::int32_t next;        // the place to visit
  std::int32_t in_use;      // 0: the lists are about equal, and each CTA has its own tiles
  std::int32_t together;    // 1: they are equal but for a sixteenth, and teams wait for each other
  std::uint32_t asked;      // then: for how many tiles, the first of each team not counted
  std::uint32_t stretches;  // see Schedule
};

/// In which order a launch visits its q tiles.
struct Schedule {
  std::int32_t num_tiles = 0;
  Divisor num_q_tiles;  // of one head
  Divisor num_heads;
  std::int32_t section = 0;  // heads that are visited together, longest tiles first; 0: in order
  // Lists are visited from their ends in every second round: what the round before read last is
  // then still in L2.
  bool alternate = false;
  // If their lists turn out to be equal, teams do not begin a round before all come to the end of
  // the one before.
  bool together = false;
  // Where each team has its own tiles: the last of them, which teams share.
  Shares shares;
  // Where all tiles are of the same keys, without lists: the stretches of them that teams have come
  // through together. Null: each team goes at its own pace.
  std::uint32_t* stretches = nullptr;
  // Set on the GPU by the kernel before.
  Progress* progress = nullptr;  // null: each CTA has its own tiles
  // num_tiles: behind a tile for each team the longest list first. Null: as they are numbered
  std::int32_t* order = nullptr;
};

struct QTile {
  std::int32_t q_tile = 0;
  std::int32_t head = 0;
  std::int32_t batch = 0;
  bool backward = false;      // visit the list from its end
  std::int32_t part = -1;     // of all parts (shares.h), if the tile is shared
  std::uint32_t asked = 0;    // to be begun when teams have asked for so many; 0: at once
  std::int32_t of_round = 0;  // teams that have a tile of the same round, if they keep in step
};

/// The tile at a place of the schedule.
SPARSEK_HOST_DEVICE inline QTile tile_at(const Schedule& s, std::int32_t place) {
  std::int32_t q_tile;
  std::int32_t head;  // of all batches
  if (s.section == 0) {
    q_tile = place % s.num_q_tiles;
    head = place / s.num_q_tiles;
  } else {
    const std::int32_t num_heads = s.num_tiles / s.num_q_tiles;
    const std::int32_t first = place / (s.section * s.num_q_tiles.value()) * s.section;
    const std::int32_t heads = num_heads - first < s.section ? num_heads - first : s.section;
    const std::int32_t within = place - first * s.num_q_tiles.value();
    q_tile = s.num_q_tiles.value() - 1 - within / heads;
    head = first + within % heads;
  }
  return {q_tile, head % s.num_heads, head / s.num_heads};
}

/// The place that a CTA visits in its round-th turn: back and forth, so that one which got a longer
/// tile gets a shorter one next.
SPARSEK_HOST_DEVICE inline std::int32_t place_of(std::int32_t round, std::int32_t cta,
                                                 std::int32_t num_ctas) {
  return round * num_ctas + (round % 2 == 0 ? cta : num_ctas - 1 - cta);
}

}  // namespace sparsek::attn::sm90
