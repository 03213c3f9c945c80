#pragma once

#include <cstdint>

#include "bsr_gemm/sm90/config.h"

namespace sparsek::bsr::sm90 {

/// The kernel for few columns: a tile is kSide rows of the sparse operand and all columns, 64 for
/// each warp group that multiplies. Columns lie along WGMMA's M there, and rows along its N.
template <class Element_, Major kSparse_, Major kDense_, int kSide_>
struct FewConfig {
  using Element = Element_;
  static constexpr Major kSparse = kSparse_;
  static constexpr Major kDense = kDense_;
  static constexpr int kSide = kSide_;  // of the squares that blocks are cut into: 16, 32 or 64
  static constexpr int kSquares = kTileK / kSide;  // of a stage
  // Of those that there is room for. With more copies on their way the first ones come later.
  static constexpr int kMostStages = kSide == 64 ? 8 : kSide == 32 ? 10 : 16;
  static constexpr int kSparseElements = kTileK * kSide;
  static constexpr int kDenseElements = kTileK * 64;  // of a warp group
  static constexpr int kBytesOfSums = 64 * kSide * sizeof(float);
  // What Epilogue asks for, to which columns are rows and rows are columns.
  static constexpr int kTileCols = kSide;
  static constexpr int kStagedCols = kSide < 32 ? kSide : 32;
  static constexpr int kStaging = 8192;  // bytes of a warp group
  static constexpr int kRoomForSums = kBytesOfSums > kStaging ? kBytesOfSums : kStaging;
  static constexpr bool kOneSparse = false, kBothSparse = false;
};

constexpr int kFewMostCols = 256;
constexpr int kFewMostGroups = kFewMostCols / 64;
constexpr int kFewMostTiles = 32;     // of a cluster: one for each lane
constexpr int kFewProducers = 4;      // warps that load
constexpr int kFewSmem = 227 * 1024;  // bytes of a CTA

constexpr int few_threads(int groups) { return 128 * groups + 32 * kFewProducers; }

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
  static_assert((2 * C::kMostStages + kFewMostGroups) * 8 <= kBarriers);

  constexpr int stage() const { return kSparse + groups * kDense; }
  constexpr int beside() const {
    return groups * (C::kRoomForSums + (staging_apart ? C::kStaging : 0)) + kBarriers + 1024;
  }
  constexpr int stages() const {
    const int most = (kFewSmem - beside()) / stage();
    return most < C::kMostStages ? most : C::kMostStages;
  }
  constexpr int bytes() const { return stages() * stage() + beside(); }
};

}  // namespace sparsek::bsr::sm90
