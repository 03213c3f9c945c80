#include "attention/sm90/sharing.h"

#include <algorithm>

#include "core/integers.h"

namespace sparsek::attn::sm90 {
namespace {

/// The share of the chip that works, on average, where a tile takes `steps`.
double busy(std::int64_t tiles, const Shares& shares, std::int64_t slots, std::int64_t steps) {
  std::int64_t time = ceil_div(tiles - shares.tiles, slots) * steps;
  if (shares.tiles > 0) {
    time += ceil_div(num_parts(shares), slots) * ceil_div(steps, shares.parts.value());
  }
  return static_cast<double>(tiles * steps) / static_cast<double>(time * slots);
}

/// Entries of a list that a step of the kernel takes.
std::int64_t entries_of_step(const Problem& p, const Kernel& kernel) {
  return p.has_mask ? std::max<std::int64_t>(kernel.tile_kv / p.kv_block, 1) : 1;
}

// Fewer tiles of keys than this are not worth the sum of the parts.
constexpr std::int64_t kLeastTilesOfPart = 2;
// With lists: nor are fewer listed keys, and after other rounds fewer keys * head_dim saved.
constexpr std::int64_t kLeastListedKeysOfPart = 256, kLeastSavedByParts = 640 * 128;
constexpr std::int64_t kMostPartsOfTile = 32;  // each adds to the sum
// Nor is less than this of the chip won by it; and more parts have to win something too.
constexpr double kLeastGainOfSplit = 1.25, kLeastGainOfMoreParts = 1.05;
constexpr double kGainOfJoined = 1.3;  // of an SM's two teams for a tile over one, about

/// Of a part.
std::int64_t least_keys(const Problem& p, const Kernel& kernel) {
  const std::int64_t tiles = kLeastTilesOfPart * kernel.tile_kv;
  return p.has_mask ? std::max({tiles, kLeastListedKeysOfPart, p.kv_block}) : tiles;
}

/// Where tiles leave SMs idle and have many keys: parts of the keys of all, or of the last round's,
/// without lists by another kernel, which packed heads have anyway.
void share_keys(const Problem& p, Choice* choice) {
  Choice shared;
  shared.kernel = &kernel_of_parts(p);
  shared.num_q_tiles = tiles_of(*shared.kernel, p);
  const std::int64_t tiles = shared.num_q_tiles * p.num_q_heads * p.batch;
  shared.num_tiles = tiles;
  const std::int64_t keys = keys_of_tile(p, std::min<std::int64_t>(shared.kernel->tile_q, p.q_len));
  const std::int64_t slots = slots_of(*shared.kernel, p);
  const std::int64_t keys_of_step = p.has_mask
                                        ? std::max<std::int64_t>(shared.kernel->tile_kv, p.kv_block)
                                        : shared.kernel->tile_kv;
  const std::int64_t steps = ceil_div(keys, keys_of_step);
  double least = busy(choice->num_tiles, {}, slots_of(*choice->kernel, p), 1) *
                 (p.packed_heads > 1 ? kLeastGainOfMoreParts : kLeastGainOfSplit) *
                 (choice->kernel->joins ? kGainOfJoined : 1.0);
  const auto consider = [&](std::int64_t of, std::int64_t parts) {
    if (parts < 2) return;
    const Shares shares{static_cast<std::int32_t>(of), parts, entries_of_step(p, *shared.kernel)};
    const double share = busy(tiles, shares, slots, steps);
    if (share < least) return;
    least = share * kLeastGainOfMoreParts;
    shared.shares = shares;
  };
  const std::int64_t most = std::min(keys / least_keys(p, *shared.kernel), kMostPartsOfTile);
  // More rounds are for those that memory bounds, whose keys are read by one tile; of many rounds
  // the last one is little.
  const bool rounds = shared.num_q_tiles == 1 && tiles < 32 * slots;
  const std::int64_t last = tiles % slots;
  if (rounds && tiles > slots && last > 0) consider(last, std::min(slots / last, most));
  for (std::int64_t parts = 2; parts <= most && (rounds || tiles * parts <= slots); ++parts) {
    consider(tiles, parts);
  }
  if (shared.shares.tiles > 0 || p.packed_heads > 1) *choice = shared;
}

/// Lists: the tiles of the last round, or all if there is one, in parts, where that takes no team
/// longer than a part.
void share_lists(const Problem& p, Choice* choice) {
  const Kernel& kernel = *choice->kernel;
  std::int64_t slots = slots_of(kernel, p);
  // One team is enough to keep an SM busy, but where memory is waited for.
  if (choice->num_q_tiles > 1 && choice->num_tiles <= slots / kernel.teams) slots /= kernel.teams;
  const std::int64_t tiles = choice->num_tiles % slots;
  if (tiles == 0) return;
  const std::int64_t keys = keys_of_tile(p, std::min<std::int64_t>(kernel.tile_q, p.q_len));
  // Where memory is waited for, bytes count.
  const std::int64_t least =
      std::max(least_keys(p, kernel),
               choice->num_q_tiles > 1 ? 0 : kLeastListedKeysOfPart * 128 / kernel.head_dim);
  const std::int64_t parts = std::min({slots / tiles, keys / least, kMostPartsOfTile});
  if (parts < 2) return;
  // The teams that have tiles are alone on their SMs, and faster than in a round: of two or three
  // measured, by about (teams + 1) / 2.
  const std::int64_t saved = keys * (parts - 1) / parts * kernel.head_dim * 2 / (kernel.teams + 1);
  if (choice->num_tiles > slots && saved < kLeastSavedByParts) return;
  choice->shares = {static_cast<std::int32_t>(tiles), parts, entries_of_step(p, kernel)};
}

}  // namespace

void share_tiles(const Problem& p, Choice* choice) {
  if (p.has_mask && p.packed_heads == 1) {
    share_lists(p, choice);
  } else {
    share_keys(p, choice);
  }
}

}  // namespace sparsek::attn::sm90
