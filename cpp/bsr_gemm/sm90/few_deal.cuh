#pragma once

#include "bsr_gemm/sm90/few_params.h"

namespace sparsek::bsr::sm90 {

/// What is dealt: the block rows' own lists.
struct FewLists {
  const RowGroup* groups;  // longest first
  const std::int32_t* cols;
  const std::int32_t* values;
  std::int32_t num_tiles;
  int log2_side;
  int log2_block_rows;
  int log2_block_k;
  std::int32_t absent_k;  // behind the last one
};

struct FewDealArrays {
  FewShare* shares;
  FewSquare* squares;
  FewPart* parts;
  std::int64_t num_squares;  // that there is room for
};

/// The tiles of a cluster, which are dealt forwards and backwards, laid one behind the other, the
/// shortest first, and cut in the middle: the first CTA has what lies before the cut, the second
/// one the rest. So they share one tile at most, which the first CTA begins with, having others,
/// and the second one ends with: its sums are there by then. A warp knows all tiles, one in each
/// lane.
class FewWalk {
 public:
  struct Part {
    std::int64_t begin;  // entries of the block row
    std::int32_t length;
    std::int32_t first, last;  // stages, from `first` on and before `last`
    std::int32_t row;
    std::int32_t tile_in_row;
    bool shared;
  };

  __device__ FewWalk(const FewLists& lists, std::int32_t cta, std::int32_t ctas)
      : second_(cta % 2 != 0) {
    const int log2_tiles = lists.log2_block_rows - lists.log2_side;  // of a block row
    const std::int32_t cluster = cta / 2, clusters = ctas / 2;
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const std::int32_t tile = lane * clusters + (lane % 2 == 0 ? cluster : clusters - 1 - cluster);
    const bool valid = tile < lists.num_tiles;
    const RowGroup group = valid ? lists.groups[tile >> log2_tiles] : RowGroup{};
    begin_ = group.begin;
    length_ = group.length;
    tile_in_row_ = tile & ((1 << log2_tiles) - 1);
    row_ = (group.index << lists.log2_block_rows) + (tile_in_row_ << lists.log2_side);
    const auto stages = static_cast<std::int32_t>(
        ((static_cast<std::int64_t>(length_) << lists.log2_block_k) + kTileK - 1) / kTileK);
    std::int32_t end = stages;  // of this tile and the shorter ones, in higher lanes
    for (int offset = 1; offset < 32; offset *= 2) {
      const std::int32_t before = __shfl_down_sync(0xffffffffu, end, offset);
      if (lane + offset < 32) end += before;
    }
    const std::int32_t cut = (__shfl_sync(0xffffffffu, end, 0) + 1) / 2, start = end - stages;
    const bool shared = start < cut && cut < end;
    shared_ = __ballot_sync(0xffffffffu, shared);
    left_ = __ballot_sync(0xffffffffu, valid && (shared || (cut < end) == second_));
    first_ = shared && second_ ? cut - start : 0;
    last_ = shared && !second_ ? cut - start : stages;
  }

  __device__ bool valid() const { return left_ != 0; }

  __device__ Part take() {
    const std::uint32_t alone = left_ & ~shared_;
    const std::uint32_t sooner = second_ ? alone : left_ & shared_;
    const int at = __ffs(static_cast<int>(sooner != 0 ? sooner : left_)) - 1;
    left_ &= ~(1u << at);
    const auto of = [&](auto value) { return __shfl_sync(0xffffffffu, value, at); };
    return {of(begin_),
            of(length_),
            of(first_),
            of(last_),
            of(row_),
            of(tile_in_row_),
            (shared_ >> at & 1) != 0};
  }

 private:
  bool second_;
  std::int64_t begin_;
  std::int32_t length_, row_, tile_in_row_, first_, last_;
  std::uint32_t shared_, left_;
};

/// A warp for each CTA of the product.
__global__ void __launch_bounds__(32) deal_parts_kernel(const FewLists lists, FewDealArrays out) {
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  FewPart* part = out.parts + cta * kFewMostParts;
  std::int32_t stages = 0;
  for (FewWalk walk(lists, cta, static_cast<std::int32_t>(gridDim.x)); walk.valid(); ++part) {
    const FewWalk::Part taken = walk.take();
    if (threadIdx.x == 0) *part = {taken.row, taken.last - taken.first, taken.shared, 0};
    stages += taken.last - taken.first;
  }
  if (threadIdx.x != 0) return;
  *part = {kNoPart, 0, 0, 0};
  out.shares[cta].squares = stages << (6 - lists.log2_side);
}

constexpr int kDealThreads = 128;

/// A CTA for each one of the product, behind deal_parts_kernel.
__global__ void __launch_bounds__(kDealThreads)
    deal_squares_kernel(const FewLists lists, FewDealArrays out) {
  static_assert(kTileK == 1 << 6);
  const auto cta = static_cast<std::int32_t>(blockIdx.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  std::int64_t begin = 0;
  for (std::int32_t other = 0; other < cta; ++other) begin += out.shares[other].squares;
  if (thread == 0) out.shares[cta].begin = begin;
  const int log2_squares = 6 - lists.log2_side;  // of a stage
  std::int32_t done = 0;
  const auto put = [&](std::int32_t at, FewSquare square) {
    if (at < kFewFirst) out.shares[cta].first[at] = square;
    if (begin + at < out.num_squares) out.squares[begin + at] = square;
  };
  for (FewWalk walk(lists, cta, static_cast<std::int32_t>(gridDim.x)); walk.valid();) {
    const FewWalk::Part part = walk.take();
    const std::int32_t count = (part.last - part.first) << log2_squares;
    for (std::int32_t i = thread; i < count; i += kDealThreads) {
      const std::int64_t k = ((static_cast<std::int64_t>(part.first) << log2_squares) + i)
                             << lists.log2_side;
      const std::int64_t entry = k >> lists.log2_block_k;
      FewSquare square{-1, lists.absent_k};
      if (entry < part.length) {
        const auto in_block = static_cast<std::int32_t>(k & ((1 << lists.log2_block_k) - 1));
        square.value = lists.values[part.begin + entry];
        square.k_and_in_row =
            (lists.cols[part.begin + entry] << lists.log2_block_k) + in_block + part.tile_in_row;
      }
      put(done + i, square);
    }
    done += count;
  }
  for (std::int32_t i = done + thread; i < kFewFirst; i += kDealThreads) {
    out.shares[cta].first[i] = {-1, lists.absent_k};
  }
}

}  // namespace sparsek::bsr::sm90
