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

/// The tiles of a CTA. The lists lie one behind the other. In each round the CTAs take as many
/// entries as make a full tile, in the last one as many as any other, to one entry; where a group
/// ends among them there are two tiles. In rounds, so that at any time the CTAs read few rows.
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
    total_ = begins_[p.lists.num_groups];
    begin_round();
  }

  __device__ bool valid() const { return next_ < end_; }

  __device__ SampledTile take() {
    if (p_.whole) return take_whole();
    const SampledTile tile{group_, next_,
                           static_cast<std::int32_t>(min(end_, begins_[group_ + 1]) - next_)};
    next_ += tile.count;
    if (next_ == end_) {
      begin_round();
    } else {
      while (begins_[group_ + 1] <= next_) ++group_;
    }
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

  __device__ void begin_round() {
    std::int64_t size = static_cast<std::int64_t>(in_tile_) * gridDim.x;
    if (total_ - round_ < size) size = total_ - round_;
    next_ = round_ + size * blockIdx.x / gridDim.x;
    end_ = round_ + size * (blockIdx.x + 1) / gridDim.x;
    round_ += size;
    std::int32_t high = p_.lists.num_groups;
    group_ = 0;  // begins[group] <= next < begins[high]
    while (high - group_ > 1) {
      const std::int32_t middle = (group_ + high) / 2;
      (begins_[middle] <= next_ ? group_ : high) = middle;
    }
  }

  const SampledParams& p_;
  const std::int64_t* begins_;
  std::int32_t in_tile_;
  std::int32_t group_ = 0;
  std::int64_t total_ = 0, round_ = 0;  // entries, those up to the end of this round
  std::int64_t next_ = 0, end_ = 0;
};

}  // namespace sparsek::bsr::sm90
