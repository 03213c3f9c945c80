#pragma once

#include <cooperative_groups.h>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/params.h"
#include "bsr_gemm/sm90/sampled_cut.h"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// Entries of a group's list: up to three units of the pattern's columns, from anywhere in the row.
struct SampledTile {
  std::int32_t group;
  std::int64_t first;  // entry
  std::int32_t count;
  // K tiles. Where several CTAs share the tile: which of their parts this is.
  std::int32_t begin_step, end_step;
  std::int32_t part, parts;
};

__device__ inline std::int32_t cols_of(const SampledParams& p, const SampledTile& tile) {
  return tile.count << p.log2_block_cols;
}

/// All threads of a launch that is cooperative, so that all of its CTAs run at a time: what they
/// wrote before it they read behind it.
__device__ inline void wait_for_grid() { cooperative_groups::this_grid().sync(); }

/// The tiles of a CTA, which a whole warp asks for. Lists are cut into tiles of so many units as
/// all take least time with. They are dealt the widest first, since CTAs whose tiles are as wide
/// stay at the same k, and find in L2 what others have read. Where tiles are few, CTAs beside each
/// other share one.
class SampledTiles {
 public:
  __device__ explicit SampledTiles(const SampledParams& p)
      : p_(p), ctas_(static_cast<std::int32_t>(gridDim.x)), log2_in_unit_(7 - p.log2_block_cols) {
    static_assert(kSampledUnit == 1 << 7);
    if (p.whole) {
      choose_whole();
    } else {
      choose();
    }
    move_on(static_cast<std::int32_t>(blockIdx.x) / parts_);
  }

  /// Of a stage.
  __device__ int pieces() const { return 1 + most_; }
  __device__ int stages() const { return kSampledPieces / pieces(); }

  __device__ bool valid() const { return at_ < num_tiles_; }
  /// Whether CTAs share tiles, one each: wait_for_grid() then follows in every CTA.
  __device__ bool shares() const { return parts_ > 1; }

  __device__ SampledTile take() {
    SampledTile tile = p_.whole ? whole_tile() : listed_tile();
    tile.parts = parts_;
    tile.part = static_cast<std::int32_t>(blockIdx.x) % parts_;
    tile.begin_step = begin_of(tile.part);
    tile.end_step = begin_of(tile.part + 1);
    move_on(ctas_);
    return tile;
  }

 private:
  static constexpr int kMost = kMostSampledUnits;

  __device__ std::int32_t begin_of(std::int32_t part) const {
    return static_cast<std::int32_t>(std::int64_t{p_.steps} * part / parts_);
  }

  __device__ void move_on(std::int32_t tiles) {
    at_ += tiles;
    if (!p_.whole && valid()) advance(tiles);
  }

  __device__ SampledTile listed_tile() const {
    const std::int64_t* const begin = p_.lists.begins + group_;
    const auto length = static_cast<std::int32_t>(begin[1] - begin[0]);
    const std::int32_t unit = SampledCut{most_}.first(units_of(length), width_, index_);
    const std::int32_t first = unit << log2_in_unit_;
    return {group_, begin[0] + first, min(width_ << log2_in_unit_, length - first)};
  }

  __device__ std::int32_t units_of(std::int32_t length) const {
    return (length + (1 << log2_in_unit_) - 1) >> log2_in_unit_;
  }
  /// Of a group, 0 behind the last one.
  __device__ std::int32_t units_in(std::int32_t group) const {
    if (group >= p_.lists.num_groups) return 0;
    const std::int64_t* const begin = p_.lists.begins + group;
    return units_of(static_cast<std::int32_t>(begin[1] - begin[0]));
  }

  __device__ void choose() {
    std::int32_t tiles[kMost][kMost]{};  // by the widest, and by width
    for (std::int32_t group = lane(); group < p_.lists.num_groups; group += 32) {
      const std::int32_t units = units_in(group);
#pragma unroll
      for (int most = 1; most <= kMost; ++most) {
#pragma unroll
        for (int width = 1; width <= most; ++width) {
          tiles[most - 1][width - 1] += SampledCut{most}.tiles(units, width);
        }
      }
    }
    std::int64_t best = 0;
#pragma unroll
    for (int most = kMost; most > 0; --most) {
      SampledRounds rounds = no_rounds();
#pragma unroll
      for (int width = most; width > 0; --width) {
        rounds.add(__reduce_add_sync(0xffffffffu, tiles[most - 1][width - 1]), width);
      }
      choose(rounds, most, &best);
    }
    width_ = most_;
  }

  __device__ SampledRounds no_rounds() const {
    return {ctas_, p_.steps, p_.most_parts, row_tiles(), col_tiles(1)};
  }

  /// The widest tiles so wide, if that takes no more time: narrow ones have more stages.
  __device__ void choose(const SampledRounds& rounds, int most, std::int64_t* best) {
    if (most < kMost && rounds.cost() > *best) return;
    *best = rounds.cost();
    most_ = most;
    num_tiles_ = rounds.tiles;
    parts_ = rounds.parts();
  }

  /// So many tiles further, which there are.
  __device__ void advance(std::int32_t tiles) {
    while (width_ > 0) {
      const std::int32_t own = SampledCut{most_}.tiles(units_in(group_ + lane()), width_);
      const std::int32_t end = sum_up_to_lane(own);
      const std::int32_t at = index_ + tiles;  // of the tiles of these groups
      const std::int32_t all = __shfl_sync(0xffffffffu, end, 31);
      if (at < all) {
        const int owner = __popc(__ballot_sync(0xffffffffu, end <= at));
        index_ = at - __shfl_sync(0xffffffffu, end - own, owner);
        group_ += owner;
        return;
      }
      tiles = at - all;
      index_ = 0;
      group_ += 32;
      if (group_ >= p_.lists.num_groups) {
        group_ = 0;
        --width_;
      }
    }
  }

  __device__ std::int32_t row_tiles() const { return (p_.rows + kTileRows - 1) / kTileRows; }
  __device__ std::int32_t col_tiles(int width) const {
    return (p_.cols + width * kSampledUnit - 1) / (width * kSampledUnit);
  }

  __device__ void choose_whole() {
    std::int64_t best = 0;
    for (int width = kMost; width > 0; --width) {
      SampledRounds rounds = no_rounds();
      rounds.add(row_tiles() * col_tiles(width), width);
      choose(rounds, width, &best);
    }
  }

  /// Of a whole result, by panels of columns; an entry is a unit.
  __device__ SampledTile whole_tile() const {
    constexpr int kPanel = 8;  // tiles
    const std::int32_t rows = row_tiles(), cols = col_tiles(most_);
    const std::int32_t panel = at_ / (rows * kPanel), in_panel = at_ % (rows * kPanel);
    const std::int32_t num = min(kPanel, cols - panel * kPanel);
    const std::int32_t first = (panel * kPanel + in_panel % num) * most_;
    return {in_panel / num, first, min(most_, col_tiles(1) - first)};
  }

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  const SampledParams& p_;
  const std::int32_t ctas_;
  const int log2_in_unit_;
  int most_ = kMost;  // units of the widest tiles
  std::int32_t num_tiles_ = 0, parts_ = 1;
  // The next tile. Where there are lists: its units, its group, and which of the group's tiles it
  // is.
  std::int32_t at_ = 0;
  int width_ = kMost;
  std::int32_t group_ = 0, index_ = 0;
};

}  // namespace sparsek::bsr::sm90
