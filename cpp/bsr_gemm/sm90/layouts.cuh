#pragma once

// clang-format off
#include "primitives/driver_version.h"
// clang-format on

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/epilogue.cuh"

namespace sparsek::bsr::sm90 {

constexpr cute::GMMA::Major gmma(Major major) {
  return major == Major::k ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
}

/// Lines of kInner contiguous elements, swizzled over their width as TMA does.
template <class Element, Major kMajor, int kInner>
constexpr auto operand_atom() {
  using namespace cute;
  if constexpr (kMajor == Major::k) {
    if constexpr (kInner == 16) return GMMA::Layout_K_SW32_Atom<Element>{};
    if constexpr (kInner == 32) return GMMA::Layout_K_SW64_Atom<Element>{};
    if constexpr (kInner == 64) return GMMA::Layout_K_SW128_Atom<Element>{};
  } else {
    if constexpr (kInner == 16) return GMMA::Layout_MN_SW32_Atom<Element>{};
    if constexpr (kInner == 32) return GMMA::Layout_MN_SW64_Atom<Element>{};
    if constexpr (kInner == 64) return GMMA::Layout_MN_SW128_Atom<Element>{};
  }
}

/// Where a byte of such lines lies, seen without the swizzle.
template <int kInner>
__device__ int swizzled(int offset) {
  constexpr int kSwizzle = (kInner / 8 - 1) * 16;
  return offset ^ (offset >> 3 & kSwizzle);
}

/// The shared memory of a stage. A TMA box lands as lines of contiguous elements, swizzled over
/// their width:
///   k contiguous            (64 / inner) slices of `rows` lines of `inner` elements
///   rows contiguous         (rows / inner) slices of 64 lines of `inner` elements
///   dense, cols contiguous  (64 / kInner) slices of (cols / 64) pieces of kInner lines of 64
template <class C>
struct Layouts {
  using Element = typename C::Element;
  static constexpr bool kSampled = C::kKind == Kind::sampled;
  static constexpr int kSparseInner = kSampled ? 64 : C::kInner;
  // The dense operand beside a sparse one comes in slices of k, by lines as long as they get.
  static constexpr bool kDenseInSlices = C::kOneSparse && C::kDense == Major::free;
  static constexpr int kDenseInner =
      kDenseInSlices || (kSampled && C::kDense == Major::k) ? 64 : C::kInner;

  template <Major kMajor, int kInner, int kRows>
  static constexpr auto operand() {
    using namespace cute;
    using Order = conditional_t<kMajor == Major::k, Step<_1, _2>, Step<_2, _1>>;
    return tile_to_shape(operand_atom<Element, kMajor, kInner>(), Shape<Int<kRows>, Int<kTileK>>{},
                         Order{});
  }
  static constexpr auto dense() {
    using namespace cute;
    if constexpr (kDenseInSlices) {
      const auto slice = tile_to_shape(operand_atom<Element, Major::free, 64>(),
                                       Shape<Int<C::kTileCols>, Int<C::kInner>>{}, Step<_2, _1>{});
      return tile_to_shape(slice, Shape<Int<C::kTileCols>, Int<kTileK>>{});
    } else {
      return operand<C::kDense, kDenseInner, C::kTileCols>();
    }
  }
  using Sparse = decltype(operand<C::kSparse, kSparseInner, kTileRows>());  // (row, k)
  using Dense = decltype(dense());                                          // (col, k)

  static constexpr int kSparseElements = kTileRows * kTileK;
  static constexpr int kDenseElements = C::kTileCols * kTileK;

  /// Where the box that begins at (row, k) of an operand of so many rows lands.
  template <Major kMajor, int kInner, int kRows>
  __device__ static int box(int row, int k) {
    return kMajor == Major::k ? k / kInner * (kRows * kInner) + row * kInner
                              : row / kInner * (kTileK * kInner) + k * kInner;
  }
  __device__ static int sparse_box(int row, int k) {
    return box<C::kSparse, kSparseInner, kTileRows>(row, k);
  }
  __device__ static int dense_box(int col, int k) {
    if constexpr (kDenseInSlices) {
      return k / C::kInner * (C::kTileCols * C::kInner) + col * C::kInner;
    } else {
      return box<C::kDense, kDenseInner, C::kTileCols>(col, k);
    }
  }
};

/// The k blocks of a pair of groups are listed so many at a time.
constexpr int kListedBlocks = 1024;
constexpr int kMostPairStages = 4;

template <class C>
struct OwnStaging {
  alignas(1024) unsigned char staging[kConsumerGroups][kStagingBytes];
};
struct NoStaging {
  std::uint64_t sums_full;  // what the other CTAs of the cluster sent (parts.cuh)
};
struct PairList {
  int2 pairs[kListedBlocks];  // where each block stands in the lists of the two groups
  int num_pairs;
  int2 groups[kMostPairStages];  // those of the tile that a stage is of
};

/// Two CTAs on an SM leave no room for staging: it lies on the stages, which are free by then.
template <class C>
struct SharedStorage
    : std::conditional_t<C::kBothSparse, PairList,
                         std::conditional_t<C::kOneTile, NoStaging, OwnStaging<C>>> {
  using L = Layouts<C>;
  static_assert(!C::kBothSparse || C::kStages <= kMostPairStages);
  alignas(1024) typename C::Element sparse[C::kStages][L::kSparseElements];
  alignas(1024) typename C::Element dense[C::kStages][L::kDenseElements];
  alignas(8) std::uint64_t full[C::kStages];
  std::uint64_t empty[C::kStages];
  std::uint32_t masks[C::kStages];

  __device__ unsigned char* staging_of(int group) {
    if constexpr (C::kOneTile) {
      static_assert(sizeof(sparse) >= kConsumerGroups * kStagingBytes);
      return reinterpret_cast<unsigned char*>(sparse) + group * kStagingBytes;
    } else {
      return this->staging[group];
    }
  }
};

}  // namespace sparsek::bsr::sm90
