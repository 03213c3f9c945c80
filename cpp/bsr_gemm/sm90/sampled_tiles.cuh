#pragma once

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/params.h"

namespace sparsek::bsr::sm90 {

/// Entries of a group's list: up to kTileCols columns of the pattern, from anywhere in the row.
struct SampledTile {
  std::int32_t group;
  std::int64_t first;  // entry
  std::int32_t count;
};

/// The tiles of a CTA. The lists lie one behind the other, and each CTA has as long a stretch of
/// them as any other, to one entry; groups that end in it and kTileCols cut the stretch into tiles.
template <int kTileCols>
class SampledTiles {
 public:
  __device__ explicit SampledTiles(const SampledParams& p)
      : p_(p), begins_(p.lists.begins), in_tile_(kTileCols >> p.log2_block_cols) {
    if (p.whole) {
      next_ = blockIdx.x;
      end_ = static_cast<std::int64_t>(row_tiles()) * col_tiles();
      return;
    }
    const std::int64_t total = begins_[p.lists.num_groups];
    next_ = total * blockIdx.x / gridDim.x;
    end_ = total * (blockIdx.x + 1) / gridDim.x;
    std::int32_t high = p.lists.num_groups;  // begins[group] <= next < begins[high]
    while (high - group_ > 1) {
      const std::int32_t middle = (group_ + high) / 2;
      (begins_[middle] <= next_ ? group_ : high) = middle;
    }
  }

  __device__ bool valid() const { return next_ < end_; }

  __device__ SampledTile take() {
    if (p_.whole) return take_whole();
    while (begins_[group_ + 1] <= next_) ++group_;
    const std::int64_t stop = min(min(end_, begins_[group_ + 1]), next_ + in_tile_);
    const SampledTile tile{group_, next_, static_cast<std::int32_t>(stop - next_)};
    next_ = stop;
    return tile;
  }

 private:
  __device__ std::int32_t row_tiles() const { return (p_.rows + kTileRows - 1) / kTileRows; }
  __device__ std::int32_t col_tiles() const { return (p_.cols + kTileCols - 1) / kTileCols; }

  /// Every tile of a whole result, by panels of columns; entry i stands for the i-th half of a
  /// tile.
  __device__ SampledTile take_whole() {
    constexpr int kPanel = 8;  // tiles
    const std::int32_t rows = row_tiles(), cols = col_tiles();
    const auto index = static_cast<std::int32_t>(next_);
    const std::int32_t panel = index / (rows * kPanel), in_panel = index % (rows * kPanel);
    const std::int32_t width = min(kPanel, cols - panel * kPanel);
    const std::int32_t col = panel * kPanel + in_panel % width;
    next_ += gridDim.x;
    const std::int32_t left = p_.cols - col * kTileCols;
    return {in_panel / width, std::int64_t{col} * in_tile_,
            min(in_tile_, (left + kTileCols / 2 - 1) / (kTileCols / 2))};
  }

  const SampledParams& p_;
  const std::int64_t* begins_;
  std::int32_t in_tile_;
  std::int32_t group_ = 0;
  std::int64_t next_, end_;
};

}  // namespace sparsek::bsr::sm90
