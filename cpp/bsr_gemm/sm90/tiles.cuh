#pragma once

#include <type_traits>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/params.h"
#include "bsr_gemm/sm90/stretches.h"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// One tile of the result.
struct Tile {
  std::int32_t group;  // of the sparse operand's rows
  std::int32_t col;    // first one
  std::int64_t begin;  // entries of the group
  std::int64_t end;
  std::int32_t steps;     // K tiles
  bool is_short = false;  // Params::last_cols
  // Of a tile that several stretches share: which one this is, whether its sums are left to the one
  // that begins the tile, or how many others it adds to its own.
  std::int32_t stretch = 0;
  bool left = false;
  std::int32_t others = 0;
};

__device__ inline std::int32_t steps_of(const Params& p, std::int64_t entries) {
  return static_cast<std::int32_t>(((entries << p.log2_block_k) + kTileK - 1) / kTileK);
}

/// The tiles of a CTA, in the order in which all roles walk them: one panel of columns after the
/// other, or some abreast, so that it is read once, in it the longest row groups first. Dealt
/// forwards and backwards, so that no CTA always has the longer ones, or as the plan's schedule
/// says. kEven: many tiles are dealt to no more CTAs than it takes for none to have one more, 2048
/// to 128 of 132.
template <int kTileCols, bool kEven>
class Tiles {
 public:
  __device__ explicit Tiles(const Params& p) : p_(p), num_tiles_(p.num_tiles) {
    const auto worker = static_cast<std::int32_t>(blockIdx.x);
    if (p.lists.schedule.workers > 0) begin_ = p.lists.schedule.begins[worker];
    bool any = true;
    if (scheduled()) {
      end_ = p.lists.schedule.begins[worker + 1];
      at_ = begin_ - 1;
      any = begin_ != end_;
    } else {
      const auto workers = static_cast<std::int32_t>(gridDim.x);
      const std::int32_t most = (p.dealt_tiles + workers - 1) / workers;
      end_ = kEven && most >= 8 ? (p.dealt_tiles + most - 1) / most : workers;
      any = worker < end_;
    }
    if (!scheduled()) {
      panels_abreast_ = p.panels_abreast;
      num_tiles_ = p.dealt_tiles;
    }
    if (!any) first_ = num_tiles_;
    advance();
    load();
  }

  __device__ bool valid() const { return index_ < num_tiles_; }

  /// Moves on; what it loads is not needed before the next call.
  __device__ Tile take() {
    Tile tile;
    int4 raw = group_;
    for (std::int32_t* const word : {&raw.x, &raw.y, &raw.z, &raw.w}) *word = of_first_lane(*word);
    const auto& group = reinterpret_cast<const RowGroup&>(raw);
    tile.group = group.index;
    tile.col = col_tile_ * kTileCols;
    const std::int32_t beyond = tile.col - p_.last_col;
    tile.is_short = p_.last_cols > 0 && beyond >= 0 && num_tiles_ == p_.dealt_tiles;
    if (tile.is_short) tile.col = p_.last_col + beyond / kTileCols * p_.last_cols;
    tile.begin = group.begin;
    tile.end = group.begin + group.length;
    tile.steps = steps_of(p_, group.length);
    load();
    return tile;
  }

 private:
  __device__ bool scheduled() const { return begin_ != kDealt; }

  /// Lists are read by the first lane, and given to the others when they are needed: what all lanes
  /// read alike ptxas keeps in uniform registers, and waits for it at once to move it there.
  template <class T>
  static __device__ T read(const T* from) {
    return threadIdx.x % 32 == 0 ? __ldg(from) : T{};
  }
  static __device__ std::int32_t of_first_lane(std::int32_t value) {
    return static_cast<std::int32_t>(uniform(static_cast<std::uint32_t>(value)));
  }

  /// Reads where the next tile is, without waiting for it.
  __device__ void advance() {
    if (!scheduled()) {
      const auto worker = static_cast<std::int32_t>(blockIdx.x);
      next_ = at_ * end_ + (at_ % 2 == 0 ? worker : end_ - 1 - worker);
      ++at_;
    } else if (first_ < num_tiles_) {
      if (++at_ == end_) {
        at_ = begin_;
        first_ += p_.lists.schedule.panels * p_.lists.num_groups;
      }
      next_ = read(p_.lists.schedule.tiles + at_);
    }
  }

  __device__ void load() {
    index_ = first_ + of_first_lane(next_);
    // What the schedule has beyond the last panel is left out.
    while (scheduled() && index_ >= num_tiles_ && first_ < num_tiles_) {
      advance();
      index_ = first_ + of_first_lane(next_);
    }
    if (!valid()) return;
    advance();  // one ahead, since where the group is read depends on it
    const std::int32_t groups = p_.lists.num_groups, alone = index_ - panels_abreast_ * groups;
    const bool abreast = alone < 0;
    const int log2_abreast = abreast ? p_.log2_abreast : 0;
    const std::int32_t index = abreast ? index_ : alone, size = groups << log2_abreast;
    const std::int32_t at = index % size;
    col_tile_ = (abreast ? 0 : panels_abreast_) + (index / size << log2_abreast) +
                (at & ((1 << log2_abreast) - 1));
    group_ = read(reinterpret_cast<const int4*>(p_.lists.groups) + (at >> log2_abreast));
  }

  const Params& p_;
  std::int32_t num_tiles_;
  // Where the schedule has this CTA's tiles, and which one is next. Where tiles are dealt: kDealt,
  // to how many CTAs, and which turn is next.
  std::int32_t begin_ = kDealt, end_ = 0, at_ = 0;
  std::int32_t first_ = 0;  // tile of the panels that the schedule is at
  std::int32_t next_ = 0, index_ = 0, col_tile_ = 0;
  std::int32_t panels_abreast_ = 0;  // a schedule has its own
  int4 group_{};                     // a RowGroup
};

/// The lists of all tiles, cut into a stretch for each CTA.
template <int kTileCols>
class StretchTiles {
 public:
  __device__ static Stretches stretches(const Params& p) {
    return {p.lists.begins, p.lists.num_groups, p.num_tiles / p.lists.num_groups,
            static_cast<std::int32_t>(gridDim.x), p.log2_block_k};
  }

  /// Whoever adds waits for CTAs that were launched before it: the last one has the first stretch.
  __device__ explicit StretchTiles(const Params& p)
      : p_(p),
        stretch_(static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x)),
        place_(stretches(p).begin(stretch_)),
        end_(stretches(p).begin(stretch_ + 1)) {}

  __device__ bool valid() const { return !same_list() || place_.entry != end_.entry; }

  __device__ Tile take() {
    const std::int64_t begin = p_.lists.begins[place_.group];
    const bool inside = same_list();  // the stretch ends in it
    Tile tile;
    tile.group = place_.group;
    tile.col = place_.panel * kTileCols;
    tile.is_short = tile.col == p_.last_col;
    tile.begin = begin + place_.entry;
    tile.end = inside ? begin + end_.entry : p_.lists.begins[place_.group + 1];
    tile.steps = steps_of(p_, tile.end - tile.begin);
    tile.stretch = stretch_;
    tile.left = place_.entry > 0;
    if (inside && !tile.left) tile.others = stretches(p_).count_inside(place_, stretch_ + 1);
    if (inside) {
      place_ = end_;
    } else {
      stretches(p_).next(&place_);
    }
    return tile;
  }

 private:
  __device__ bool same_list() const {
    return place_.panel == end_.panel && place_.group == end_.group;
  }

  const Params& p_;
  std::int32_t stretch_;
  Place place_, end_;
};

/// The one tile of a CTA, or a part of its list.
template <int kTileCols>
class SplitTiles {
 public:
  __device__ explicit SplitTiles(const Params& p) : p_(p) {}

  __device__ bool valid() const { return !taken_; }
  __device__ Tile take() {
    taken_ = true;
    const int log2_split = p_.log2_split;
    const auto index = static_cast<std::int32_t>(blockIdx.x >> log2_split);
    const auto part = static_cast<std::int32_t>(blockIdx.x & ((1u << log2_split) - 1));
    const int4 raw =
        __ldg(reinterpret_cast<const int4*>(p_.lists.groups) + index % p_.lists.num_groups);
    const RowGroup& group = reinterpret_cast<const RowGroup&>(raw);
    const std::int64_t length = group.length;
    Tile tile;
    tile.group = group.index;
    tile.col = index / p_.lists.num_groups * kTileCols;
    tile.is_short = tile.col == p_.last_col;
    tile.begin = group.begin + (length * part >> log2_split);
    tile.end = group.begin + (length * (part + 1) >> log2_split);
    tile.steps = steps_of(p_, tile.end - tile.begin);
    return tile;
  }

 private:
  const Params& p_;
  bool taken_ = false;
};

/// The groups of a tile of two sparse operands, by length.
struct PairRanks {
  std::int32_t row, col;
};

/// Tiles of two sparse operands by panels of column groups, in each the longest row groups first.
__device__ inline PairRanks pair_ranks(const Params& p, std::int32_t index) {
  const std::int32_t rows = p.lists.num_groups, cols = p.col_lists.num_groups;
  const std::int32_t panel = index / (rows * p.panel_groups);
  const std::int32_t width = min(p.panel_groups, cols - panel * p.panel_groups);
  const std::int32_t in_panel = index - panel * rows * p.panel_groups;
  return {in_panel / width, panel * p.panel_groups + in_panel % width};
}

/// The one tile of a CTA: the hardware deals CTAs to the SMs as these get ready.
class PairTiles {
 public:
  __device__ explicit PairTiles(const Params& p) : p_(p) {}

  __device__ bool valid() const { return !taken_; }
  __device__ Tile take() {
    taken_ = true;
    const PairRanks ranks = pair_ranks(p_, static_cast<std::int32_t>(blockIdx.x));
    Tile tile{};
    tile.group = p_.lists.groups[ranks.row].index;
    tile.col = p_.col_lists.groups[ranks.col].index * kTileRows;
    return tile;
  }

 private:
  const Params& p_;
  bool taken_ = false;
};

template <class C>
using TilesOf = std::conditional_t<
    C::kBothSparse, PairTiles,
    std::conditional_t<C::kOneTile, SplitTiles<C::kTileCols>, Tiles<C::kTileCols, C::kEvenTiles>>>;

}  // namespace sparsek::bsr::sm90
