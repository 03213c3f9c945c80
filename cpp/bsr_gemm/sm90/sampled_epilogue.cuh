#pragma once

#include <cutlass/arch/barrier.h>

#include "bsr_gemm/sm90/epilogue.cuh"
#include "bsr_gemm/sm90/sampled_storage.cuh"
#include "bsr_gemm/sm90/sampled_tiles.cuh"

namespace sparsek::bsr::sm90 {

/// Writes the 64 rows that one warp group has summed of a sampled product's tile: alpha * sum +
/// beta * c, to blocks from anywhere in the result, or to a result that is dense. Which blocks is
/// read before the tile is multiplied: read as it is stored, each four results would wait for
/// memory.
template <class C>
class SampledEpilogue {
 public:
  using Element = typename C::Element;

  __device__ SampledEpilogue(const SampledParams& p, SampledStorage<C>& smem, int group)
      : p_(p),
        smem_(smem),
        group_(group),
        log2_block_rows_in_group_(max(0, kLog2GroupRows - p.log2_block_rows)) {}

  /// The block that this thread reads for the others, of those that the tile's columns and the
  /// group's rows have; -1: none.
  __device__ std::int32_t look_up(const SampledTile& tile) const {
    const auto thread = static_cast<int>(threadIdx.x % 128);
    const int entry = thread >> log2_block_rows_in_group_;
    if (p_.whole || entry >= tile.count) return -1;
    const int first = group_ * kGroupRows >> p_.log2_block_rows;
    const int block_row = first + (thread & ((1 << log2_block_rows_in_group_) - 1));
    const int log2_block_rows_in_tile = max(0, kLog2GroupRows + 1 - p_.log2_block_rows);
    return __ldg(p_.lists.values + ((tile.first + entry) << log2_block_rows_in_tile) + block_row);
  }

  /// Tells the others, before the tile is stored.
  __device__ void tell(std::int32_t block) {
    sync();  // those of the tile before have been read
    if (threadIdx.x % 128 < kMostBlocks) smem_.blocks[group_][threadIdx.x % 128] = block;
    sync();
  }

  /// Of the tile's columns those from `first_col` on, as many as there are.
  template <int kCols, class Acc>
  __device__ void store(const SampledTile& tile, std::int32_t first_col, const Acc& acc) {
    const Result& r = p_.result;
    const bool in_units = r.aligned && !r.wide_out && r.beta == 0.0f &&
                          (!p_.whole || (r.rows_inner ? p_.rows : p_.cols) % 8 == 0);
    if (!in_units) {
      store_fours<kCols>(tile, first_col, acc);
    } else if (r.rows_inner) {
      store_units<kCols, true>(tile, first_col, acc);
    } else {
      store_units<kCols, false>(tile, first_col, acc);
    }
  }

 private:
  static constexpr int kLog2GroupRows = 6;
  static_assert(kGroupRows == 1 << kLog2GroupRows && kTileRows == 2 * kGroupRows);
  static constexpr int kMostBlocks = SampledStorage<C>::kMostBlocks;

  struct Place {
    std::int64_t block;  // 0 where the result is dense; -1: nowhere
    std::int32_t row, col;
  };

  /// Of a result, by its row of the group and its column of the tile.
  __device__ Place place_of(const SampledTile& tile, std::int32_t row, std::int32_t col) const {
    if (p_.whole) {
      row += tile.group * kTileRows + group_ * kGroupRows;
      col += static_cast<std::int32_t>(tile.first) << p_.log2_block_cols;
      return {row < p_.rows && col < p_.cols ? 0 : -1, row, col};
    }
    if (col >= cols_of(p_, tile)) return {-1, 0, 0};
    const int at =
        (col >> p_.log2_block_cols << log2_block_rows_in_group_) + (row >> p_.log2_block_rows);
    return {smem_.blocks[group_][at], (group_ * kGroupRows + row) & ((1 << p_.log2_block_rows) - 1),
            col & ((1 << p_.log2_block_cols) - 1)};
  }

  static __device__ std::int64_t offset(const Matrix& matrix, std::int64_t block_stride,
                                        const Place& place) {
    return place.block * block_stride + place.row * matrix.sparse_stride +
           place.col * matrix.dense_stride;
  }

  __device__ void sync() const { cutlass::arch::NamedBarrier::sync(128, 1 + group_); }

  /// Results of 16 bits, 16 bytes at a time. kAcross: the rows are contiguous in the result.
  template <int kCols, bool kAcross, class Acc>
  __device__ void store_units(const SampledTile& tile, std::int32_t first_col, const Acc& acc) {
    constexpr int kRound = kCols < 128 ? kCols : 128;  // columns
    unsigned char* const staging = smem_.staging_of(group_);
    const std::int32_t num_cols = cols_of(p_, tile) - first_col;
#pragma unroll
    for (int round = 0; round < kCols / kRound; ++round) {
      if (round * kRound >= num_cols) break;
      sync();  // the last round has been read
      const int thread = opaque(threadIdx.x % 128), lane = thread % 32;
      const StagedUnits<Element, kAcross> units(staging, false);
      units.template put<kRound>(opaque(p_.result.alpha), round * kRound, acc);
      sync();
      // A thread takes the same unit of every 16th column, or of every second row of its warp's.
      const int unit = kAcross ? thread % 8 : lane % 16;
      const int first_line = kAcross ? thread / 8 : thread / 32 * 16 + lane / 16;
      constexpr int kLineStep = kAcross ? 16 : 2;
      if (!kAcross && unit * 8 >= kRound) continue;
#pragma unroll 1
      for (int i = 0; i < (kAcross ? kRound : 16) / kLineStep; ++i) {
        const int line = first_line + i * kLineStep;
        const std::int32_t col = first_col + round * kRound + (kAcross ? line : unit * 8);
        const Place place = place_of(tile, kAcross ? unit * 8 : line, col);
        if (place.block < 0) continue;  // others of these rows have one there
        const Matrix& out = p_.result.out;
        *reinterpret_cast<uint4*>(static_cast<Element*>(out.data) +
                                  offset(out, p_.out_block_stride, place)) =
            units.get(units.place(line % 64, line / 64 * 8 + unit), unit);
      }
    }
  }

  /// Any result.
  template <int kCols, class Acc>
  __device__ void store_fours(const SampledTile& tile, std::int32_t first_col, const Acc& acc) {
    const Result& r = p_.result;
    constexpr int kStagedCols = kCols < 64 ? kCols : 64;
    store_by_fours<Element, kCols, kStagedCols, C::kFoursAtOnce>(
        r, smem_.staging_of(group_), false, cols_of(p_, tile) - first_col, 1 + group_, acc,
        [&](std::int32_t row, std::int32_t col) -> FourPlace {
          const Place place = place_of(tile, row, first_col + col);
          if (place.block < 0) return {};
          const std::int32_t left = r.rows_inner ? p_.rows - place.row : p_.cols - place.col;
          return {offset(r.out, p_.out_block_stride, place), offset(r.c, p_.c_block_stride, place),
                  p_.whole ? min(4, left) : 4};
        });
  }

  const SampledParams& p_;
  SampledStorage<C>& smem_;
  int group_;
  int log2_block_rows_in_group_;  // how many block rows the group's 64 rows have
};

}  // namespace sparsek::bsr::sm90
