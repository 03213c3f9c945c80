#pragma once

// clang-format off
#include "primitives/driver_version.h"
// clang-format on

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/layouts.cuh"
#include "primitives/shared_access.cuh"

namespace sparsek::bsr::sm90 {

/// Where things lie in a CTA's shared memory. A stage is kTileK of k in squares of kSide:
///   dense   for each square the columns, 64 by 64: lines of 64 columns, or of kSide of k where
///           that is contiguous
///   sparse  the squares, lines along what is contiguous in memory
template <class C>
class FewStorage {
 public:
  using Element = typename C::Element;
  using Layout = FewLayout<C>;

  __device__ FewStorage(unsigned char* raw, int groups, const FewParams& p)
      : base_(align_shared(raw)),
        groups_(groups),
        stages_(p.stages),
        copied_((C::kCopied ? 0 : Layout::kSparse) + p.dense_lines * Layout::kDenseLine),
        staging_apart_(p.staging_apart) {}

  __device__ int groups() const { return groups_; }
  __device__ int stages() const { return stages_; }
  __device__ int stage_bytes() const { return Layout{groups_, staging_apart_}.stage(); }
  /// Of a stage, what TMA brings.
  __device__ int copied_bytes() const { return copied_; }

  __device__ Element* dense(int stage, int square, int group) const {
    return reinterpret_cast<Element*>(ring()) +
           ((stage * C::kSquares + square) * groups_ + group) * (C::kDenseElements / C::kSquares);
  }
  __device__ Element* sparse(int stage, int square) const {
    return reinterpret_cast<Element*>(ring()) + stages_ * groups_ * C::kDenseElements +
           (stage * C::kSquares + square) * (C::kSparseElements / C::kSquares);
  }
  /// Of the tile that the CTAs share, from the first to the second one.
  __device__ unsigned char* sums(int group) const {
    return ring() + stages_ * stage_bytes() + group * C::kRoomForSums;
  }
  __device__ unsigned char* staging(int worker) const {
    return staging_apart_ ? sums(groups_) + worker * C::kStaging : sums(worker);
  }
  __device__ std::uint64_t* full(int stage) const { return barriers() + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers() + C::kMostStages + stage; }
  __device__ std::uint64_t* sums_full(int group) const {
    return barriers() + 2 * C::kMostStages + group;
  }
  /// Of warp groups that take turns, the sums of the other one.
  __device__ std::uint64_t* handed_over(int worker) const {
    return sums_full(C::kMostGroups) + worker;
  }

  static constexpr auto sparse_layout() {  // (row, k) of a square
    using namespace cute;
    return tile_to_shape(operand_atom<Element, C::kSparse, C::kSide>(),
                         Shape<Int<C::kSide>, Int<C::kSide>>{});
  }
  static constexpr auto dense_layout() {  // (col, k) of a warp group and a square
    using namespace cute;
    constexpr int kInner = C::kDense == Major::free ? 64 : C::kSide;
    return tile_to_shape(operand_atom<Element, C::kDense, kInner>(),
                         Shape<Int<C::kGroupCols>, Int<C::kSide>>{}, Step<_2, _1>{});
  }

 private:
  __device__ std::uint64_t* barriers() const { return reinterpret_cast<std::uint64_t*>(base_); }
  __device__ unsigned char* ring() const { return base_ + Layout::kBarriers; }

  unsigned char* base_;
  int groups_, stages_, copied_;
  bool staging_apart_;
};

}  // namespace sparsek::bsr::sm90
