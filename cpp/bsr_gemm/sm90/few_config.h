#pragma once

#include <cstdint>

#include "bsr_gemm/sm90/config.h"

namespace sparsek::bsr::sm90 {

constexpr int kFewMostCols = 256;
constexpr int kFewMostProducers = 4;

/// Of a tile whose warp groups have so many columns each: of 64 they lie along WGMMA's M.
constexpr bool few_rows_along_m(int group_cols) { return group_cols == 128; }

/// The kernel for few columns: a tile is kSide rows of the sparse operand and all columns,
/// kGroupCols for each warp group that multiplies. Of 64, columns lie along WGMMA's M, and rows
/// along its N. Of 128 it is the other way round, for squares of 64: tensor cores then read a
/// quarter less of shared memory, which TMA writes to at the same time.
template <class Element_, Major kSparse_, Major kDense_, int kSide_, int kGroupCols_ = 64>
struct FewConfig {
  using Element = Element_;
  static constexpr Major kSparse = kSparse_;
  static constexpr Major kDense = kDense_;
  static constexpr int kSide = kSide_;  // of the squares that blocks are cut into: 16, 32 or 64
  static constexpr int kGroupCols = kGroupCols_;
  static constexpr bool kRowsAlongM = few_rows_along_m(kGroupCols);
  static_assert(kGroupCols == 64 || (kRowsAlongM && kSide == 64));
  static constexpr int kMostGroups = kFewMostCols / kGroupCols;
  static constexpr int kSquares = kTileK / kSide;  // of a stage
  // Blocks are copied by the threads of the warps that load, 32 units of 16 bytes for a square. TMA
  // takes as long for lines of 32 bytes as for longer ones.
  static constexpr bool kCopied = kSide == 16;
  static constexpr int kArrivals = kCopied ? 1 + 32 : 1;  // until a stage is full
  // Two warp groups take the stages of up to 64 columns in turn: what one does for a stage besides
  // multiplying takes longer than four squares of 16 take to come.
  static constexpr bool kTakesTurns = kSide == 16;
  static constexpr int turns(int groups) { return kTakesTurns && groups == 1 ? 2 : 1; }
  // Of those that there is room for. With more copies on their way the first ones come later.
  static constexpr int kMostStages = kSide == 64 ? 8 : kSide == 32 ? 10 : 16;
  static constexpr int kSparseElements = kTileK * kSide;
  static constexpr int kDenseElements = kTileK * kGroupCols;  // of a warp group
  static constexpr int kBytesOfSums = kGroupCols * kSide * sizeof(float);
  // Warps that load: starting a copy takes one some 100 clocks, and small squares are many copies.
  static constexpr int kProducers = kSide == 64 ? 1 : kFewMostProducers;
  static constexpr int threads(int groups) {
    return 128 * groups * turns(groups) + 32 * kProducers;
  }
  // What Epilogue asks for, to which rows are what lies along M.
  static constexpr int kTileCols = kRowsAlongM ? kGroupCols : kSide;
  static constexpr int kStagedCols = kSide < 32 ? kSide : 32;
  static constexpr int kFoursAtOnce = 4;
  static constexpr int kStaging = 128 * kGroupCols;  // bytes of a warp group
  static constexpr int kRoomForSums = kBytesOfSums > kStaging ? kBytesOfSums : kStaging;
  static constexpr bool kOneSparse = false, kBothSparse = false;
};

constexpr int kFewMostTiles = 32;     // of a cluster: one for each lane
constexpr int kFewSmem = 227 * 1024;  // bytes of a CTA

/// Columns of a warp group. With no more than three of 64 as much is multiplied as there is.
constexpr int few_group_cols(int side, std::int64_t cols) {
  return side == 64 && cols > 192 ? 128 : 64;
}

/// Clusters of two CTAs, one on an SM.
constexpr int few_clusters(int num_sms) { return num_sms / 2; }

/// Whether so many rows keep the clusters busy, and none gets more tiles than it can list.
constexpr bool few_takes_rows(std::int64_t rows, int side, int num_sms) {
  const std::int64_t tiles = rows / side, clusters = few_clusters(num_sms);
  return 4 * tiles >= 3 * clusters && tiles <= clusters * kFewMostTiles;
}

/// Where no cluster has more than two tiles, the CTA that gets sums has no other tile, and may
/// stage results where those were.
constexpr bool few_staging_apart(std::int64_t rows, int side, int num_sms) {
  return rows / side > 2 * few_clusters(num_sms);
}

/// Bytes of the parts of shared memory.
template <class C>
struct FewLayout {
  int groups;
  bool staging_apart;

  static constexpr int kSparse = C::kSparseElements * sizeof(typename C::Element);
  static constexpr int kDense = C::kDenseElements * sizeof(typename C::Element);
  static constexpr int kDenseLine = kTileK * sizeof(typename C::Element);  // of a column
  static constexpr int kBarriers = 1024;  // before all else, where the compiler knows their places
  static_assert(!C::kTakesTurns || C::kBytesOfSums <= C::kStaging);
  static_assert((2 * C::kMostStages + C::kMostGroups + 2) * 8 <= kBarriers);

  constexpr int stage() const { return kSparse + groups * kDense; }
  constexpr bool apart() const { return staging_apart || C::turns(groups) > 1; }
  constexpr int beside() const {
    const int staged = apart() ? C::turns(groups) * C::kStaging : 0;
    return groups * (C::kRoomForSums + staged) + kBarriers + 1024;
  }
  constexpr int stages() const {
    const int room = (kFewSmem - beside()) / stage();
    const int most = room < C::kMostStages ? room : C::kMostStages;
    return most - most % C::turns(groups);  // so that a stage is always the same warp group's
  }
  constexpr int bytes() const { return stages() * stage() + beside(); }
};

}  // namespace sparsek::bsr::sm90
