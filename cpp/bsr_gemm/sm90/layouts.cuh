#pragma once

// clang-format off
#include "primitives/driver_version.h"
// clang-format on

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/epilogue.cuh"

namespace sparsek::bsr::sm90 {

/// The shared memory of a stage. A TMA box lands as lines of contiguous elements, swizzled over
/// their width:
///   sparse, k contiguous     (64 / kInner) slices of `rows` lines of kInner elements
///   sparse, rows contiguous  (rows / kInner) slices of 64 lines of kInner elements
///   dense, k contiguous      (64 / kInner) slices of `cols` lines of kInner elements
///   dense, cols contiguous   (64 / kInner) slices of (cols / 64) pieces of kInner lines of 64
template <class C>
struct Layouts {
  using Element = typename C::Element;
  static constexpr int kDenseInner = C::kDense == Major::k ? C::kInner : 64;

  template <Major kMajor, int kInner>
  static constexpr auto atom() {
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

  static constexpr auto sparse() {
    using namespace cute;
    using Order = conditional_t<C::kSparse == Major::k, Step<_1, _2>, Step<_2, _1>>;
    return tile_to_shape(atom<C::kSparse, C::kInner>(), Shape<Int<kTileRows>, Int<kTileK>>{},
                         Order{});
  }
  static constexpr auto dense() {
    using namespace cute;
    using Order = conditional_t<C::kDense == Major::k, Step<_1, _2>, Step<_2, _1>>;
    const auto slice = tile_to_shape(atom<C::kDense, kDenseInner>(),
                                     Shape<Int<C::kTileCols>, Int<C::kInner>>{}, Order{});
    return tile_to_shape(slice, Shape<Int<C::kTileCols>, Int<kTileK>>{});
  }
  using Sparse = decltype(sparse());  // (row, k)
  using Dense = decltype(dense());    // (col, k)

  static constexpr int kSparseElements = kTileRows * kTileK;
  static constexpr int kDenseElements = C::kTileCols * kTileK;

  /// Where the box that begins at (row, k) or (col, k) of a tile lands.
  __device__ static int sparse_box(int row, int k) {
    return C::kSparse == Major::k ? k / C::kInner * (kTileRows * C::kInner) + row * C::kInner
                                  : row / C::kInner * (kTileK * C::kInner) + k * C::kInner;
  }
  __device__ static int dense_box(int col, int k) {
    return k / C::kInner * (C::kTileCols * C::kInner) + col * C::kInner;
  }
  /// Where the eight contiguous elements at (row, k) of a sparse tile lie, in bytes.
  __device__ static int sparse_unit(int row, int k) {
    const int inner = C::kSparse == Major::k ? k % C::kInner : row % C::kInner;
    const int box =
        C::kSparse == Major::k ? sparse_box(row, k - inner) : sparse_box(row - inner, k);
    const int offset = (box + inner) * 2;
    constexpr int kSwizzle = (C::kInner / 8 - 1) * 16;
    return offset ^ (offset >> 3 & kSwizzle);
  }
};

template <class C>
struct SharedStorage {
  using L = Layouts<C>;
  alignas(1024) typename C::Element sparse[C::kStages][L::kSparseElements];
  alignas(1024) typename C::Element dense[C::kStages][L::kDenseElements];
  alignas(1024) unsigned char staging[kConsumerGroups][kStagingBytes];
  alignas(8) std::uint64_t full[C::kStages];
  std::uint64_t empty[C::kStages];
  std::uint32_t masks[C::kStages];
};

}  // namespace sparsek::bsr::sm90
