#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/sampled_storage.cuh"
#include "bsr_gemm/sm90/sampled_tiles.cuh"
#include "primitives/barrier.cuh"

namespace sparsek::bsr::sm90 {

/// Fills the stages of a sampled product: a piece of k of the tile's 128 rows, and of the columns
/// of its blocks, a box or more for each. Lane i of every warp knows box i: the rows' first, the
/// columns' from kFirstColBox on.
template <class C>
class SampledProducer {
 public:
  using L = Layouts<C>;

  __device__ SampledProducer(const SampledParams& p, SampledStorage<C>& smem)
      : p_(p), smem_(smem), thread_(threadIdx.x % 128) {
    const int lane = thread_ % 32;
    row_box_ = lane < kRowBoxes ? lane * 64 : -1;
    const int log2_cols = C::kDense == Major::k ? p.log2_block_cols : kLog2DenseInner;
    col_box_ = lane >= kFirstColBox ? (lane - kFirstColBox) << log2_cols : C::kTileCols;
    mine_ = lane % 4 == thread_ / 32;
  }

  __device__ void run() {
    int stage = 0;
    std::uint32_t phase = 0;
    SampledTiles tiles(p_);
    while (tiles.valid()) {
      const SampledTile tile = tiles.take();
      const int num_cols = cols_of(p_, tile);
      const bool has_col_box = mine_ && col_box_ < num_cols;
      std::int32_t col = 0;
      if (has_col_box) {
        const std::int64_t entry = tile.first + (col_box_ >> p_.log2_block_cols);
        const auto block = p_.whole ? static_cast<std::int32_t>(entry) : p_.lists.cols[entry];
        col = (block << p_.log2_block_cols) + (col_box_ & ((1 << p_.log2_block_cols) - 1));
      }
      const std::uint32_t bytes = 2 * kTileK * (kTileRows + num_cols);
      for (int k = tile.begin_step * kTileK; k < tile.end_step * kTileK; k += kTileK) {
        wait(&smem_.empty[stage], phase ^ 1);
        std::uint64_t* const full = &smem_.full[stage];
        auto* const pieces = &smem_.ring[stage * tiles.pieces()];
        if (thread_ == 0) arrive_expecting(full, bytes);
        if (row_box_ >= 0 && mine_) {
          load<C::kSparse>(p_.row_map, full, &pieces[0][L::sparse_box(row_box_, 0)],
                           tile.group * kTileRows + row_box_, k);
        }
        if (has_col_box) {
          load<C::kDense>(p_.col_map, full, &pieces[1][L::dense_box(col_box_, 0)], col, k);
        }
        if (++stage == tiles.stages()) {
          stage = 0;
          phase ^= 1;
        }
      }
    }
    if (tiles.shares()) wait_for_grid();
  }

 private:
  static constexpr int kRowBoxes = C::kSparse == Major::k ? 1 : kTileRows / 64;
  static constexpr int kFirstColBox = 8;
  static constexpr int kLog2DenseInner = L::kDenseInner == 16 ? 4 : L::kDenseInner == 32 ? 5 : 6;
  static_assert(C::kTileCols / 16 <= 32 - kFirstColBox);

  static constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  template <Major kMajor>
  static __device__ void load(const CUtensorMap& map, std::uint64_t* full, typename C::Element* to,
                              int row, int k) {
    cute::SM90_TMA_LOAD_2D::copy(&map, full, kHint, to, kMajor == Major::k ? k : row,
                                 kMajor == Major::k ? row : k);
  }

  const SampledParams& p_;
  SampledStorage<C>& smem_;
  int thread_;
  int row_box_, col_box_;  // first row and column of this lane's boxes
  bool mine_;              // this warp copies them
};

}  // namespace sparsek::bsr::sm90
