#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/few_storage.cuh"
#include "primitives/barrier.cuh"

namespace sparsek::bsr::sm90 {

/// A warp that fills every C::kProducers-th stage. Its lanes read a square each, a round ahead, and
/// start that square's copies, but for blocks of which all lanes copy a part.
template <class C>
class FewProducer {
 public:
  /// What a warp begins with. Reading it takes as long as making the barriers, and needs none.
  struct Start {
    FewSquare square;
    std::int32_t count;
    const FewSquare* all;  // from this lane's first one on
  };
  static __device__ Start start(const FewParams& p) {
    const FewShare& share = p.deal.shares[blockIdx.x];
    return {share.first[held()], share.squares, p.deal.squares + share.begin + held()};
  }

  __device__ FewProducer(const FewParams& p, const FewStorage<C>& smem, const Start& start)
      : p_(p),
        smem_(smem),
        start_(start),
        // No more than stages: a warp's last stage says that the one before that has been read.
        warps_(min(C::kProducers, smem.stages())),
        turn_(warp()) {
    if constexpr (kOwn) stage_ = turn_;
    if constexpr (C::kCopied) {
      from_ = static_cast<const char*>(p.sparse_values) +
              (std::uint64_t{p.sparse_line_stride} * (lane() / 2) + lane() % 2) * 16;
      to_ = swizzled<C::kSide>(lane() * 16);
    }
  }

  __device__ void run() {
    if (turn_ < warps_) fill_all();
    cute::cluster_wait();
  }

 private:
  using Hint = cute::TMA::CacheHintSm90;

  // Squares of a round: those of 16 that a warp holds are of its own stages. If each warp held the
  // next 32 of all, reading them would take longer than their copies.
  static constexpr bool kOwn = C::kSide == 16;
  static constexpr int kRound = kOwn ? kFewFirst : 32;
  static_assert(!kOwn || FewLayout<C>{C::kMostGroups, true}.stages() >= C::kProducers);

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int warp() { return static_cast<int>(threadIdx.x / 32 % C::kProducers); }
  /// Of a round, the square that this lane holds.
  static __device__ int held() {
    if (!kOwn) return lane();
    return (lane() / C::kSquares * C::kProducers + warp()) * C::kSquares + lane() % C::kSquares;
  }

  __device__ void fill_all() {
    FewSquare square = start_.square;
    for (std::int32_t at = 0; at < start_.count; at += kRound) {
      const FewSquare now = square;
      if (at + kRound + held() < start_.count) square = start_.all[at + kRound];
      fill(now, min(start_.count - at, kRound) / C::kSquares);
    }
  }

  __device__ void fill(const FewSquare& square, int stages) {
    if constexpr (kOwn) {
      for (int i = warp(); i < stages; i += C::kProducers) {
        fill_stage(square, i);
        stage_ += C::kProducers;
        if (stage_ >= smem_.stages()) {
          stage_ -= smem_.stages();
          phase_ ^= 1;
        }
      }
    } else {  // which with squares of 32 is faster, by up to a twentieth with 256 columns
      for (int i = 0; i < stages; ++i) {
        if (turn_ == 0) {
          fill_stage(square, i);
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
  }

  /// Stage i of the round.
  __device__ void fill_stage(const FewSquare& square, int i) {
    [[maybe_unused]] std::uint32_t places[C::kSquares];
    if constexpr (C::kCopied) {
      const std::uint32_t own = place_of(square);
#pragma unroll
      for (int j = 0; j < C::kSquares; ++j) {
        places[j] = __shfl_sync(0xffffffffu, own, i / C::kProducers * C::kSquares + j);
      }
    }
    wait(smem_.empty(stage_), phase_ ^ 1);
    if constexpr (C::kCopied) copy_squares(places);
    if (held() / C::kSquares == i) {
      if (lane() % C::kSquares == 0) arrive_expecting(smem_.full(stage_), smem_.copied_bytes());
      load(square, lane() % C::kSquares);
    }
  }

  /// Of the stage, the square in place `at`.
  __device__ void load(const FewSquare& square, int at) {
    const std::int32_t k = square.k();
    if (!C::kCopied && !dense_first_) load_square(square, k, at);
    load_dense(k, at);
    if (!C::kCopied && dense_first_) load_square(square, k, at);
  }

  __device__ void load_square(const FewSquare& square, std::int32_t k, int at) {
    constexpr auto kHint = static_cast<std::uint64_t>(Hint::EVICT_FIRST);  // read once
    const std::int32_t in_block = k & p_.block_k_mask;
    const std::int32_t in_row = square.tile_in_row() * C::kSide;
    const bool by_k = C::kSparse == Major::k;
    cute::SM90_TMA_LOAD_3D::copy(&p_.sparse_map, smem_.full(stage_), kHint,
                                 smem_.sparse(stage_, at), by_k ? in_block : in_row,
                                 by_k ? in_row : in_block, square.value);
  }

  /// Where its block's part begins among all values, in units of 16 bytes.
  __device__ std::uint32_t place_of(const FewSquare& square) const {
    const bool by_k = C::kSparse == Major::k;
    const std::uint32_t k = square.k() & p_.block_k_mask;
    const std::uint32_t row = square.tile_in_row() * C::kSide;
    const std::uint32_t in_block =
        by_k ? row * p_.sparse_line_stride + k / 8 : k * p_.sparse_line_stride + row / 8;
    const std::uint32_t block = p_.sparse_block_stride * static_cast<std::uint32_t>(square.value);
    return square.value < 0 ? kAbsent : block + in_block;
  }

  /// 16 bytes of each square of a stage.
  __device__ void copy_squares(const std::uint32_t (&places)[C::kSquares]) {
    const std::uint32_t to = shared_address(smem_.sparse(stage_, 0)) + to_;
#pragma unroll
    for (int i = 0; i < C::kSquares; ++i) {
      copy_async(to + i * 512, from_ + std::uint64_t{places[i]} * 16,
                 places[i] == kAbsent ? 0 : 16);
    }
    arrive_after_copies(smem_.full(stage_));
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

  // In place of where a square begins, in units of 16 bytes, which is less (why_not_copied).
  static constexpr std::uint32_t kAbsent = 0xffffffffu;

  const char* from_;  // what this lane copies of a square at place 0
  std::uint32_t to_;  // and where to
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
