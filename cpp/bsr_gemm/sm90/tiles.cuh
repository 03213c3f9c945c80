#pragma once

#include <type_traits>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/params.h"
#include "bsr_gemm/sm90/stretches.h"

namespace sparsek::bsr::sm90 {

/// One tile of the result.
struct Tile {
  std::int32_t group;  // of the sparse operand's rows
  std::int32_t col;    // first one
  std::int64_t begin;  // entries of the group
  std::int64_t end;
  std::int32_t steps;  // K tiles
  // Of a tile that several stretches share: which one this is, whether its sums are left to the one
  // that begins the tile, or how many others it adds to its own.
  std::int32_t stretch = 0;
  bool left = false;
  std::int32_t others = 0;
};

/// The tiles of a CTA, in the order in which all roles walk them: one panel of columns after the
/// other, so that it is read once, in it the longest row groups first. Dealt forwards and
/// backwards, so that no CTA always has the longer ones, or as the plan's schedule says. With a row
/// that is too long for that, a stretch of all lists for each CTA.
template <int kTileCols>
class Tiles {
 public:
  __device__ explicit Tiles(const Params& p)
      : p_(p),
        worker_(static_cast<std::int32_t>(blockIdx.x)),
        workers_(static_cast<std::int32_t>(gridDim.x)) {
    if (p.sums != nullptr && stretches().needed(p.lists.groups[0].length)) {
      // Whoever adds waits for CTAs that were launched before it.
      stretch_ = workers_ - 1 - worker_;
      place_ = stretches().begin(stretch_);
      end_place_ = stretches().begin(stretch_ + 1);
      return;
    }
    if (scheduled()) {
      begin_ = p.lists.schedule.begins[worker_];
      end_ = p.lists.schedule.begins[worker_ + 1];
      at_ = begin_ - 1;
      if (begin_ == end_) first_ = p.num_tiles;
    }
    advance();
    load();
  }

  __device__ bool valid() const {
    if (stretch_ < 0) return index_ < p_.num_tiles;
    return place_.panel != end_place_.panel || place_.group != end_place_.group ||
           place_.entry != end_place_.entry;
  }

  /// Moves on; what it loads is not needed before the next call.
  __device__ Tile take() {
    if (stretch_ >= 0) return take_of_stretch();
    Tile tile;
    tile.group = group_.index;
    tile.col = col_tile_ * kTileCols;
    tile.begin = group_.begin;
    tile.end = group_.begin + group_.length;
    tile.steps = steps_of(tile);
    load();
    return tile;
  }

 private:
  __device__ std::int32_t steps_of(const Tile& tile) const {
    return static_cast<std::int32_t>((((tile.end - tile.begin) << p_.log2_block_k) + kTileK - 1) /
                                     kTileK);
  }

  __device__ Stretches stretches() const {
    return {p_.lists.begins, p_.lists.num_groups, p_.num_tiles / p_.lists.num_groups, workers_,
            p_.log2_block_k};
  }

  __device__ Tile take_of_stretch() {
    const Place from = place_;
    const bool ends =
        from.panel == end_place_.panel && from.group == end_place_.group;  // inside the list
    const std::int64_t begin = p_.lists.begins[from.group];
    Tile tile;
    tile.group = from.group;
    tile.col = from.panel * kTileCols;
    tile.begin = begin + from.entry;
    tile.end = ends ? begin + end_place_.entry : p_.lists.begins[from.group + 1];
    tile.steps = steps_of(tile);
    tile.stretch = stretch_;
    tile.left = from.entry > 0;
    if (ends && !tile.left) tile.others = stretches().count_inside(from, stretch_ + 1);
    if (ends) {
      place_ = end_place_;
    } else {
      stretches().next(&place_);
    }
    return tile;
  }

  __device__ bool scheduled() const { return p_.lists.schedule.workers > 0; }

  /// Reads where the next tile is, without waiting for it.
  __device__ void advance() {
    if (!scheduled()) {
      next_ = turn_ * workers_ + (turn_ % 2 == 0 ? worker_ : workers_ - 1 - worker_);
      ++turn_;
    } else if (first_ < p_.num_tiles) {
      if (++at_ == end_) {
        at_ = begin_;
        first_ += p_.lists.schedule.panels * p_.lists.num_groups;
      }
      next_ = __ldg(p_.lists.schedule.tiles + at_);
    }
  }

  __device__ void load() {
    index_ = first_ + next_;
    // What the schedule has beyond the last panel is left out.
    while (scheduled() && index_ >= p_.num_tiles && first_ < p_.num_tiles) {
      advance();
      index_ = first_ + next_;
    }
    if (!valid()) return;
    advance();  // one ahead, since where the group is read depends on it
    col_tile_ = index_ / p_.lists.num_groups;
    const int4 raw =
        __ldg(reinterpret_cast<const int4*>(p_.lists.groups) + index_ % p_.lists.num_groups);
    group_ = reinterpret_cast<const RowGroup&>(raw);
  }

  const Params& p_;
  std::int32_t worker_, workers_;
  std::int32_t turn_ = 0;
  std::int32_t begin_ = 0, end_ = 0, at_ = 0;  // in the schedule
  std::int32_t first_ = 0;                     // tile of the panels that the schedule is at
  std::int32_t next_ = 0, index_ = 0, col_tile_ = 0;
  RowGroup group_{};
  std::int32_t stretch_ = -1;  // of this CTA; -1: whole tiles
  Place place_, end_place_;
};

/// The one tile of a CTA, or a part of its list.
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
    tile.col = index / p_.lists.num_groups * kCols;
    tile.begin = group.begin + (length * part >> log2_split);
    tile.end = group.begin + (length * (part + 1) >> log2_split);
    tile.steps = static_cast<std::int32_t>(
        (((tile.end - tile.begin) << p_.log2_block_k) + kTileK - 1) / kTileK);
    return tile;
  }

 private:
  static constexpr int kCols = 64;

  const Params& p_;
  bool taken_ = false;
};

/// Tiles of two sparse operands by panels of column groups.
__device__ inline Tile pair_tile(const Params& p, std::int32_t index) {
  const std::int32_t rows = p.lists.num_groups, cols = p.col_lists.num_groups;
  const std::int32_t panel = index / (rows * kPanelGroups);
  const std::int32_t width = min(kPanelGroups, cols - panel * kPanelGroups);
  const std::int32_t in_panel = index - panel * rows * kPanelGroups;
  Tile tile{};
  tile.group = in_panel / width;
  tile.col = (panel * kPanelGroups + in_panel % width) * kTileRows;
  return tile;
}

/// The one tile of a CTA: the hardware deals CTAs to the SMs as these get ready.
class PairTiles {
 public:
  static constexpr bool kMany = false;
  __device__ explicit PairTiles(const Params& p) : tile_(pair_tile(p, blockIdx.x)) {}

  __device__ bool valid() const { return !taken_; }
  __device__ Tile take() {
    taken_ = true;
    return tile_;
  }

 private:
  Tile tile_{};
  bool taken_ = false;
};

template <class C>
using TilesOf =
    std::conditional_t<C::kBothSparse, PairTiles,
                       std::conditional_t<C::kOneTile, SplitTiles, Tiles<C::kTileCols>>>;

}  // namespace sparsek::bsr::sm90
