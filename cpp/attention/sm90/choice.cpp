#include "attention/sm90/choice.h"

#include <algorithm>

#include "attention/fused.h"
#include "core/integers.h"
#include "core/message.h"

namespace sparsek::attn::sm90 {
namespace {

template <class C>
constexpr Kernel row(double cost = 1) {
  return {C::kHeadDim,   C::kValueDim,     C::kTileQ, C::kTileKv, C::kStages,
          C::kCtasPerSm, C::kTilesAtATime, C::kLists, C::kPacks,  C::kJoins,
          C::kSlabK,     C::kSlabV,        cost,      &launch<C>};
}

// By head_dim: the first that is wide enough has the least to fill with zeros. With lists, the
// widest tiles first.
// clang-format off
constexpr Kernel kKernels[] = {
    row<Dense64>(),
    row<Dense64Wide>(1.02),
    row<Dense64Small>(1.25),
    row<Dense64Joined>(1.2),
    row<Dense96>(),
    row<Dense96Small>(1.15),
    row<Dense128>(),
    row<Dense128Small>(1.08),
    row<Dense192x128>(),
    row<Dense192x128Small>(1.15),
    row<Dense192>(),
    row<Dense256>(),
    row<Lists64>(1.8),
    row<Lists64Small>(),
    row<Lists96>(),
    row<Lists128>(),
    row<Lists192x128>(),
    row<Lists192>(),
    row<Lists256>(),
    row<NarrowLists64>(),
    row<NarrowLists128>(),
    row<NarrowLists256>(),
    row<PackedLists64>(),
    row<PackedLists128>(),
    row<PackedLists256>(),
    row<Split64>(),
    row<Split128>(),
    row<Split256>(),
};
// clang-format on

// Of K and V, which stays in L2 (50 MB) while the heads that they belong to are visited.
constexpr std::int64_t kBytesInL2 = std::int64_t{32} << 20;

bool is_wide_enough(const Kernel& kernel, const Problem& p) {
  return kernel.head_dim >= p.head_dim && kernel.value_dim >= p.value_dim;
}

std::int64_t tiles_of(const Kernel& kernel, const Problem& p) {
  const std::int64_t rows_of_tile = kernel.tile_q / p.packed_heads * p.packed_heads;
  return ceil_div(p.q_len, rows_of_tile);
}

/// Q tiles that the chip computes at a time.
std::int64_t slots_of(const Kernel& kernel, const Problem& p) {
  return std::int64_t{std::max(1, p.device.num_sms)} * kernel.ctas_per_sm * kernel.teams;
}

/// That a tile may read.
std::int64_t keys_of_tile(const Problem& p, std::int64_t rows) {
  const std::int64_t queries = ceil_div(rows, p.packed_heads);
  const std::int64_t seen = std::min(p.kv_len, p.band.end_shift - p.band.begin_shift + queries - 1);
  return p.has_mask ? std::min(seen, p.listed_keys) : seen;
}

// With fewer keys two teams gain less than joining what they have costs.
constexpr std::int64_t kLeastKeysOfJoined = 768;

bool takes(const Kernel& kernel, const Problem& p) {
  if (!is_wide_enough(kernel, p)) return false;
  if (kernel.joins && (tiles_of(kernel, p) * p.num_q_heads * p.batch > slots_of(kernel, p) ||
                       keys_of_tile(p, kernel.tile_q) < kLeastKeysOfJoined)) {
    return false;
  }
  if (kernel.lists != p.has_mask || kernel.packs != (p.packed_heads > 1)) return false;
  return !p.has_mask || p.packed_heads > 1 || p.q_block % kernel.tile_q == 0;
}

/// The kernel for parts of the keys and packed heads.
const Kernel& kernel_of_parts(const Problem& p) {
  return *std::find_if(std::begin(kKernels), std::end(kKernels), [&](const Kernel& kernel) {
    return kernel.packs && kernel.lists == p.has_mask && is_wide_enough(kernel, p);
  });
}

/// Relative time: rounds of the chip's tiles, each as long as its queries.
double estimate(const Kernel& kernel, const Problem& p) {
  const std::int64_t tiles = tiles_of(kernel, p) * p.num_q_heads * p.batch;
  const std::int64_t rounds = ceil_div(tiles, slots_of(kernel, p));
  return static_cast<double>(rounds) * kernel.tile_q * kernel.cost;
}

/// Of K and V.
std::int64_t bytes_of_kv_head(const Problem& p) {
  return p.kv_len * (p.head_dim + p.value_dim) * 2;
}

// With more, the longest q tiles of all of them wait for memory at once.
constexpr std::int64_t kMostHeadsOfSection = 32;

/// Query heads whose q tiles are visited together, longest first, under a band that makes them
/// unequal: many, for balance, but only as many as L2 holds, and about as many in the last section
/// as in the others, lest few heads' longest tiles are begun at the end.
int section_of(const Problem& p) {
  const std::int64_t kv_heads = p.num_kv_heads * p.batch;
  const std::int64_t most =
      std::clamp<std::int64_t>(kBytesInL2 / bytes_of_kv_head(p), 1, kMostHeadsOfSection);
  const std::int64_t of_section = ceil_div(kv_heads, ceil_div(kv_heads, most));
  return static_cast<int>(of_section * (p.num_q_heads / p.num_kv_heads));
}

// Of two rounds, which L2 holds while all of them is read twice.
constexpr std::int64_t kMostBytesOfEvenRounds = std::int64_t{40} << 20;

/// Two rounds of unequal tiles, which all heads together, the longest tiles first, there and back,
/// make even.
bool has_even_rounds(const Problem& p, std::int64_t tiles, std::int64_t slots) {
  return tiles > slots && tiles <= 2 * slots &&
         bytes_of_kv_head(p) * p.num_kv_heads * p.batch <= kMostBytesOfEvenRounds;
}

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

// With fewer keys the sum of the parts costs more than what is not read and multiplied.
constexpr std::int64_t kLeastKeysOfPackedHeads = 1024;
constexpr std::int64_t kMostPackedQueries = 32;  // more leave less than half of 64 rows empty

}  // namespace

const Problem& pack_heads(const Problem& p, std::optional<Problem>* memory) {
  const std::int64_t keys = p.has_mask ? std::min(p.kv_len, p.listed_keys) : p.kv_len;
  if (p.q_len > kMostPackedQueries || p.num_q_heads == p.num_kv_heads || p.wants_weights ||
      keys < kLeastKeysOfPackedHeads || (p.has_mask && !p.lists_of_kv_heads)) {
    return p;
  }
  // The least q_block is 64: one list serves all of them, and a bitmap has a row for whatever query
  // the rows of a tile beyond the last one come to.
  static_assert(2 * kMostPackedQueries <= 64);
  const Kernel& kernel = kernel_of_parts(p);
  Problem& packed = memory->emplace(p);
  packed.packed_heads = p.num_q_heads / p.num_kv_heads;
  if (packed.packed_heads > kernel.tile_q) return p;
  packed.q_len = p.q_len * packed.packed_heads;
  packed.num_q_heads = p.num_kv_heads;
  // Warpgroups, 64 rows each; those without a query do nothing.
  const std::int64_t alone = ceil_div(p.q_len, std::int64_t{64}) * packed.packed_heads;
  return 2 * ceil_div(packed.q_len, std::int64_t{64}) <= alone ? packed : p;
}

Rows rows_of(const Kernel& kernel, const Problem& p) {
  return make_rows(kernel.tile_q, p.packed_heads, p.q_len);
}

Choice choose(const Problem& p) {
  Choice choice;
  for (const Kernel& kernel : kKernels) {
    if (!takes(kernel, p)) continue;
    if (choice.kernel != nullptr) {
      const bool same_dims = kernel.head_dim == choice.kernel->head_dim &&
                             kernel.value_dim == choice.kernel->value_dim;
      // A narrow tile reads a list's keys for fewer queries, if there are more.
      const bool narrow =
          p.has_mask && kernel.tile_q < choice.kernel->tile_q && kernel.tile_q < p.q_len;
      if (!same_dims || narrow || estimate(kernel, p) >= estimate(*choice.kernel, p)) continue;
    }
    choice.kernel = &kernel;
  }
  if (choice.kernel == nullptr) return choice;
  choice.num_q_tiles = tiles_of(*choice.kernel, p);
  choice.num_tiles = choice.num_q_tiles * p.num_q_heads * p.batch;
  if (p.has_mask && p.packed_heads == 1) {
    share_lists(p, &choice);
  } else {
    share_keys(p, &choice);
  }
  const std::int64_t slots = slots_of(*choice.kernel, p);
  const std::int64_t places = choice.num_tiles - choice.shares.tiles + num_parts(choice.shares);
  // With fewer tiles than teams, a tile for each CTA before any has two.
  choice.num_ctas = static_cast<int>(std::min(places, slots / choice.kernel->teams));
  const bool unequal = p.packed_heads == 1 && (p.has_mask || is_unequal(p));
  choice.counted = unequal && choice.num_tiles > slots && (p.has_mask || choice.shares.tiles == 0);
  if (!p.has_mask && unequal) {
    choice.section = section_of(p);
    if (choice.counted && has_even_rounds(p, choice.num_tiles, slots)) {
      choice.section = static_cast<int>(p.num_q_heads * p.batch);
      choice.counted = false;  // nor is the kernel needed that sets the counter
    }
  }
  choice.keys_read_once = p.has_mask && choice.num_q_tiles == 1 && p.num_q_heads == p.num_kv_heads;
  choice.alternate = p.has_mask && bytes_of_kv_head(p) > kBytesInL2 / 2;
  if (choice.alternate && p.lists_of_kv_heads && p.num_q_heads > p.num_kv_heads) {
    choice.section = static_cast<int>(p.num_q_heads / p.num_kv_heads);  // they read the same keys
  }
  return choice;
}

std::string to_string(const Choice& choice) {
  const Kernel& k = *choice.kernel;
  return cat(
      "head_dim=", k.head_dim, " value_dim=", k.value_dim, " tile=", k.tile_q, "x", k.tile_kv,
      " stages=", k.stages, " ctas_per_sm=", k.ctas_per_sm, " teams=", k.teams, " schedule=",
      choice.counted && k.lists    ? "longest list first"
      : choice.section && !k.lists ? "longest first"
                                   : "in order",
      k.joins ? " joined_teams=2" : "", " ctas=", choice.num_ctas,
      choice.shares.tiles > 0
          ? cat(" shared_tiles=", choice.shares.tiles, " parts=", choice.shares.parts.value())
          : "");
}

}  // namespace sparsek::attn::sm90
