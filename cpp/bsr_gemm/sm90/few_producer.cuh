#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/few_storage.cuh"
#include "primitives/barrier.cuh"

namespace sparsek::bsr::sm90 {

/// A warp that fills every C::kProducers-th stage. Its lanes read a square each, a round ahead, and
/// start that square's copies.
template <class C>
class FewProducer {
 public:
  /// What a warp begins with. Reading it takes as long as making the barriers, and needs none.
  struct Start {
    FewSquare square;
    std::int32_t count;
    const FewSquare* all;
  };
  static __device__ Start start(const FewParams& p) {
    const FewShare& share = p.deal.shares[blockIdx.x];
    return {share.first[lane()], share.squares, p.deal.squares + share.begin + lane()};
  }

  __device__ FewProducer(const FewParams& p, const FewStorage<C>& smem, const Start& start)
      : p_(p),
        smem_(smem),
        start_(start),
        // No more than stages: a warp's last stage says that the one before that has been read.
        warps_(min(C::kProducers, smem.stages())),
        turn_(static_cast<int>(threadIdx.x / 32 % C::kProducers)) {}

  __device__ void run() {
    if (turn_ < warps_) fill_all();
    cute::cluster_wait();
  }

 private:
  using Hint = cute::TMA::CacheHintSm90;

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void fill_all() {
    FewSquare square = start_.square;
    for (std::int32_t at = 0; at < start_.count; at += 32) {
      const FewSquare now = square;
      if (at + 32 + lane() < start_.count) square = start_.all[at + 32];
      fill(now, min(start_.count - at, 32) / C::kSquares);
    }
  }

  __device__ void fill(const FewSquare& square, int stages) {
    for (int i = 0; i < stages; ++i) {
      if (turn_ == 0) {
        wait(smem_.empty(stage_), phase_ ^ 1);
        if (lane() / C::kSquares == i) {
          if (lane() % C::kSquares == 0) {
            arrive_expecting(smem_.full(stage_), smem_.copied_bytes());
          }
          load(square, lane() % C::kSquares);
        }
        turn_ = warps_;
      }
      --turn_;
      if (++stage_ == smem_.stages()) {
        stage_ = 0;
        phase_ ^= 1;
        dense_first_ = false;
      }
    }
  }

  /// Of the stage, the square in place `at`.
  __device__ void load(const FewSquare& square, int at) {
    const std::int32_t k = square.k & ~(kFewInRow - 1);
    if (!dense_first_) load_square(square, k, at);
    load_dense(k, at);
    if (dense_first_) load_square(square, k, at);
  }

  __device__ void load_square(const FewSquare& square, std::int32_t k, int at) {
    constexpr auto kHint = static_cast<std::uint64_t>(Hint::EVICT_FIRST);  // read once
    const std::int32_t in_block = k & p_.block_k_mask;
    const std::int32_t in_row = (square.k & (kFewInRow - 1)) * C::kSide;
    const bool by_k = C::kSparse == Major::k;
    cute::SM90_TMA_LOAD_3D::copy(&p_.sparse_map, smem_.full(stage_), kHint,
                                 smem_.sparse(stage_, at), by_k ? in_block : in_row,
                                 by_k ? in_row : in_block, square.value);
  }

  __device__ void load_dense(std::int32_t k, int at) {
    constexpr auto kHint = static_cast<std::uint64_t>(Hint::EVICT_LAST);
    std::uint64_t* const full = smem_.full(stage_);
    if constexpr (C::kDense == Major::k) {
      cute::SM90_TMA_LOAD_2D::copy(&p_.dense_map, full, kHint, smem_.dense(stage_, at, 0), k, 0);
    } else if (p_.dense_in_chunks) {
      cute::SM90_TMA_LOAD_3D::copy(&p_.dense_map, full, kHint, smem_.dense(stage_, at, 0), 0, k, 0);
    } else {
      for (int col = 0; col < smem_.groups() * C::kGroupCols; col += 64) {
        cute::SM90_TMA_LOAD_3D::copy(&p_.dense_map, full, kHint,
                                     smem_.dense(stage_, at, 0) + col * C::kSide, col, k, 0);
      }
    }
  }

  const FewParams& p_;
  const FewStorage<C>& smem_;
  const Start start_;
  int warps_, turn_;  // of how many warps, and stages until it is this one's turn
  int stage_ = 0;
  std::uint32_t phase_ = 0;
  // Measured: in the first round of stages that is faster with the rows along M, later slower.
  bool dense_first_ = C::kRowsAlongM;
};

}  // namespace sparsek::bsr::sm90
