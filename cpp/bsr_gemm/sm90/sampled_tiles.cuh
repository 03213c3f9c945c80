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
      : begins_(p.lists.begins), in_tile_(kTileCols >> p.log2_block_cols) {
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
    while (begins_[group_ + 1] <= next_) ++group_;
    const std::int64_t stop = min(min(end_, begins_[group_ + 1]), next_ + in_tile_);
    const SampledTile tile{group_, next_, static_cast<std::int32_t>(stop - next_)};
    next_ = stop;
    return tile;
  }

 private:
  const std::int64_t* begins_;
  std::int32_t in_tile_;
  std::int32_t group_ = 0;
  std::int64_t next_, end_;
};

}  // namespace sparsek::bsr::sm90
