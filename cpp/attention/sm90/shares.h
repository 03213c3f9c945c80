#pragma once

#include <cstdint>

#include "attention/block_lists.h"
#include "attention/divisor.h"
#include "attention/kv_visits.h"

namespace sparsek::attn::sm90 {

/// Tiles, the last ones of a schedule, whose keys several teams share (flash-decoding: Dao et al.,
/// Flash-Decoding for long-context inference, 2023): all tiles where they are few, or those of the
/// last round. Each part has an output and an lse, and a second kernel weighs them
/// (shared_parts.h).
struct Shares {
  std::int32_t tiles = 0;
  Divisor parts;            // of each tile
  Divisor entries_of_step;  // of a list: parts have whole steps
};

// More than any valid list has, and room for a step of 32 in 32 bits.
constexpr std::int32_t kMostEntries = 0x7fffff00;

// Part i of all is the (i % parts)-th of tile i / parts.

SPARSEK_HOST_DEVICE inline std::int32_t num_parts(const Shares& shares) {
  return shares.tiles * shares.parts.value();
}
SPARSEK_HOST_DEVICE inline std::int32_t tile_of_part(const Shares& shares, std::int32_t part) {
  return part / shares.parts;
}

/// Of the steps of a tile.
struct Share {
  std::int32_t begin;
  std::int32_t end;
};

/// What the i-th of `parts` parts has of `count`; they differ by one at most.
template <class Parts>
SPARSEK_HOST_DEVICE Share share_of(std::int32_t count, const Parts& parts, std::int32_t i) {
  const std::int32_t each = count / parts, more = count % parts;
  const std::int32_t begin = each * i + (i < more ? i : more);
  return {begin, begin + each + (i < more ? 1 : 0)};
}

/// Of a tile's list.
SPARSEK_HOST_DEVICE inline ListRange share_of(const ListRange& list, const Shares& shares,
                                              std::int32_t part) {
  const std::int64_t listed = list.end - list.begin;
  const std::int32_t step = shares.entries_of_step.value();
  const auto entries = static_cast<std::int32_t>(listed < kMostEntries ? listed : kMostEntries);
  const Share share =
      share_of((entries + step - 1) / shares.entries_of_step, shares.parts, part % shares.parts);
  const std::int64_t begin = list.begin + std::int64_t{share.begin} * step;
  const std::int64_t end = list.begin + std::int64_t{share.end} * step;
  return {begin < list.end ? begin : list.end, end < list.end ? end : list.end};
}

/// The i-th of `parts` parts of the keys that a tile sees, by steps of `tile_kv`.
template <class Parts>
SPARSEK_HOST_DEVICE KeyRange share_of(const KeyRange& keys, const Parts& parts, std::int32_t i,
                                      std::int32_t tile_kv) {
  const std::int32_t length = keys.end > keys.begin ? keys.end - keys.begin : 0;
  const Share share = share_of((length + tile_kv - 1) / tile_kv, parts, i);
  const std::int32_t end = keys.begin + share.end * tile_kv;
  return {keys.begin + share.begin * tile_kv, end < keys.end ? end : keys.end};
}

}  // namespace sparsek::attn::sm90
