#include "attention/sm90/choice.h"

#include <algorithm>

#include "attention/fused.h"
#include "attention/sm90/sharing.h"
#include "core/integers.h"
#include "core/message.h"

namespace sparsek::attn::sm90 {
namespace {

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

// What a q tile costs beside its keys, in keys, measured.
constexpr std::int64_t kKeysOfTileEnds = 175;

/// Under a window, what a q tile costs: whole tiles of keys, though its warpgroups, which leave out
/// those that none of their queries sees, see a part of some. Else 1: all kernels visit all keys.
double cost_in_window(const Kernel& kernel, const Problem& p) {
  const std::int64_t seen =
      std::max<std::int64_t>(p.band.end_shift - p.band.begin_shift + 63, 1);  // by 64 queries
  if (p.has_mask || seen >= p.kv_len) return 1;
  const std::int64_t visited = ceil_div(seen, std::int64_t{kernel.tile_kv}) * kernel.tile_kv;
  return static_cast<double>(visited + kKeysOfTileEnds);
}

/// Relative time: rounds of the chip's tiles, each as long as its queries.
double estimate(const Kernel& kernel, const Problem& p) {
  const std::int64_t tiles = tiles_of(kernel, p) * p.num_q_heads * p.batch;
  const std::int64_t rounds = ceil_div(tiles, slots_of(kernel, p));
  return static_cast<double>(rounds) * kernel.tile_q * kernel.cost * cost_in_window(kernel, p);
}

// Of K and V, which stays in L2 (50 MB) while the heads that they belong to are visited.
constexpr std::int64_t kBytesInL2 = std::int64_t{32} << 20;

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

/// Whether unequal tiles of more than one round are even in two, which all heads together, the
/// longest tiles first, there and back, make.
bool has_even_rounds(const Problem& p, std::int64_t tiles, std::int64_t slots) {
  return tiles <= 2 * slots &&
         bytes_of_kv_head(p) * p.num_kv_heads * p.batch <= kMostBytesOfEvenRounds;
}

// Of a key, in a round of q tiles. With one, keeping together saves nothing from memory, whose time
// is then what counts (32 of 4096 blocks: 7 % slower, where 16 of 1024 gain 2 %).
constexpr std::int64_t kLeastReads = 2;

/// Whether a round reads the keys of a head often enough, which L2 does not hold all of.
bool gains_together(const Problem& p, std::int64_t num_q_tiles, std::int64_t slots) {
  const std::int64_t tiles = std::min(slots, num_q_tiles * (p.num_q_heads / p.num_kv_heads));
  return bytes_of_kv_head(p) > kBytesInL2 && tiles * p.listed_keys >= kLeastReads * p.kv_len;
}

/// Whether all q tiles visit all keys of a head, more than L2 keeps, and several at a time do.
bool gains_in_step(const Problem& p, const Choice& choice) {
  return choice.kernel->keeps_step && is_unbounded(p.band, p.q_len) &&
         bytes_of_kv_head(p) >= kBytesInL2 &&
         choice.num_q_tiles * (p.num_q_heads / p.num_kv_heads) > 1;
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
  for (const Kernel& kernel : kernel_table()) {
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
  if (choice.num_tiles == 0) return choice;  // asked, but never run
  share_tiles(p, &choice);
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
  choice.together = choice.alternate && gains_together(p, choice.num_q_tiles, slots);
  choice.in_step = gains_in_step(p, choice);
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
      choice.in_step ? " in step" : "", k.joins ? " joined_teams=2" : "", " ctas=", choice.num_ctas,
      choice.shares.tiles > 0
          ? cat(" shared_tiles=", choice.shares.tiles, " parts=", choice.shares.parts.value())
          : "");
}

}  // namespace sparsek::attn::sm90
