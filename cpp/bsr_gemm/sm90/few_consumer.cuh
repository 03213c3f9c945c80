#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/epilogue.cuh"
#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/few_storage.cuh"
#include "bsr_gemm/sm90/sums.cuh"
#include "primitives/barrier.cuh"

namespace sparsek::bsr::sm90 {

/// A warp group that multiplies its columns of every tile, or every second stage of them.
template <class C>
class FewConsumer {
 public:
  using Element = typename C::Element;
  static constexpr bool kRowsAlongM = C::kRowsAlongM;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<
          Element, Element, float,
          cute::Shape<cute::Int<64>, cute::Int<C::kTileCols>, cute::Int<C::kSide>>,
          gmma(kRowsAlongM ? C::kSparse : C::kDense),
          gmma(kRowsAlongM ? C::kDense : C::kSparse)>()));

  __device__ FewConsumer(const FewParams& p, const FewStorage<C>& smem, int worker)
      : p_(p), smem_(smem), worker_(worker), group_(takes_turns() ? 0 : worker) {
    if (takes_turns()) stage_ = next_ = worker;
  }

  __device__ void run() {
    using namespace cute;
    cluster_wait();  // before anything is sent
    TiledMma mma;
    auto acc = partition_fragment_C(mma, Shape<_64, Int<C::kTileCols>>{});
    const std::int32_t first_col = group_ * C::kGroupCols;
    const FewPart* parts = p_.deal.parts + blockIdx.x * kFewMostParts;
    FewPart part = *parts;
    for (int tile = 0; part.row != kNoPart; ++tile) {
      const FewPart next = *++parts;
      const bool has_all = multiply_part(mma, part.stages, tile, acc);
      if (!has_all) {
      } else if (part.shared != 0 && blockIdx.x % 2 == 0) {
        send(acc);
      } else {
        if (part.shared != 0) add(acc);
        const std::int32_t along_m = kRowsAlongM ? part.row : first_col;
        const std::int32_t along_n = kRowsAlongM ? first_col : part.row;
        Out::template run<false>(p_, smem_.staging(worker_), along_m,
                                 Out::row_of_thread(p_, along_m), along_n, p_.cols, 1 + worker_,
                                 acc);
      }
      part = next;
    }
  }

 private:
  using Out = Epilogue<C, FewParams>;

  __device__ bool takes_turns() const {
    if constexpr (C::kTakesTurns) return p_.turns == 2;
    return false;
  }

  /// Whether the sums are all there, and this warp group's to store.
  template <class Acc>
  __device__ bool multiply_part(TiledMma& mma, std::int32_t steps, int tile, Acc& acc) {
    if constexpr (C::kTakesTurns) {
      if (takes_turns()) {
        multiply<2>(mma, steps, acc);
        return gather(tile, acc);
      }
    }
    multiply<1>(mma, steps, acc);
    return true;
  }

  template <int kTurns, class Acc>
  __device__ void multiply(TiledMma& mma, std::int32_t steps, Acc& acc) {
    using namespace cute;
    auto thread_mma = mma.get_slice(threadIdx.x % 128);
    Tensor dense =
        make_tensor(make_smem_ptr(smem_.dense(0, 0, group_)), FewStorage<C>::dense_layout());
    Tensor sparse = make_tensor(make_smem_ptr(smem_.sparse(0, 0)), FewStorage<C>::sparse_layout());
    const auto [first_a, first_b] = [&] {  // (MMA, 1, k / 16)
      if constexpr (kRowsAlongM) {
        return cute::make_tuple(thread_mma.partition_fragment_A(sparse),
                                thread_mma.partition_fragment_B(dense));
      } else {
        return cute::make_tuple(thread_mma.partition_fragment_A(dense),
                                thread_mma.partition_fragment_B(sparse));
      }
    }();
    // From square to square, in 16 bytes.
    const int dense_step = smem_.groups() * (C::kDenseElements / C::kSquares / 8);
    constexpr int kSparseStep = C::kSparseElements / C::kSquares / 8;
    const int step_a = kRowsAlongM ? kSparseStep : dense_step;
    const int step_b = kRowsAlongM ? dense_step : kSparseStep;
    mma.accumulate_ = GMMA::ScaleOut::One;
    clear(acc);
    warpgroup_fence_operand(acc);
    const int first_stage = kTurns == 1 ? 0 : worker_;  // of the ring
    const std::int32_t first = kTurns == 1 ? 0 : next_;
    if (kTurns > 1) next_ = (first + steps) % 2;
#pragma unroll 1
    for (std::int32_t step = first; step < steps; step += kTurns) {
      wait(smem_.full(stage_), phase_);
      if constexpr (C::kCopied) cutlass::arch::fence_view_async_shared();
      warpgroup_fence_operand(acc);
      warpgroup_arrive();
#pragma unroll
      for (int square = 0; square < C::kSquares; ++square) {
        const int at = stage_ * C::kSquares + square;
        Tensor a = make_tensor(first_a.data() + at * step_a, first_a.layout());
        Tensor b = make_tensor(first_b.data() + at * step_b, first_b.layout());
#pragma unroll
        for (int k = 0; k < C::kSide / 16; ++k) gemm(mma, a(_, _, k), b(_, _, k), acc);
      }
      warpgroup_commit_batch();
      warpgroup_fence_operand(acc);
      if (step > first) {
        warpgroup_wait<1>();
        release(last_);
      }
      last_ = stage_;
      stage_ += kTurns;
      if (stage_ == smem_.stages() + first_stage) {
        stage_ = first_stage;
        phase_ ^= 1;
      }
    }
    warpgroup_wait<0>();
    if (steps > first) release(last_);
    warpgroup_fence_operand(acc);
  }

  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) arrive(smem_.empty(stage));
  }

  /// Of a tile that two warp groups have multiplied: whether this one has the sums of both. The
  /// other goes on, and has those of the next tile, by when this one has stored what it stages
  /// where it finds the other's.
  template <class Acc>
  __device__ bool gather(int tile, Acc& acc) {
    const int taker = tile % 2;
    auto* const sums = reinterpret_cast<float4*>(smem_.staging(taker)) + threadIdx.x % 128;
    if (worker_ != taker) {
#pragma unroll
      for (int i = 0; i < kFours<Acc>; ++i) {
        sums[i * 128] = make_float4(acc(4 * i), acc(4 * i + 1), acc(4 * i + 2), acc(4 * i + 3));
      }
      arrive(smem_.handed_over(taker));
      return false;
    }
    wait(smem_.handed_over(taker), tile / 2 % 2);
    add_sums(acc, [&](int i) { return sums[i * 128]; });
    cutlass::arch::NamedBarrier::sync(128, 1 + worker_);  // results are staged there
    return true;
  }

  /// Of the tile that both CTAs have a part of, to the second one.
  template <class Acc>
  __device__ void send(const Acc& acc) {
    const std::uint32_t to =
        cute::set_block_rank(shared_address(smem_.sums(group_)) + threadIdx.x % 128 * 16, 1);
    const std::uint32_t barrier = cute::set_block_rank(shared_address(smem_.sums_full(group_)), 1);
#pragma unroll
    for (int i = 0; i < kFours<Acc>; ++i) {
      const auto bits = [&](int j) { return __float_as_uint(acc(4 * i + j)); };
      send_four(to + i * 128 * 16, barrier, bits(0), bits(1), bits(2), bits(3));
    }
  }

  template <class Acc>
  __device__ void add(Acc& acc) {
    static_assert(kFours<Acc> * 16 * 128 == C::kBytesOfSums);
    wait(smem_.sums_full(group_), 0);
    const auto* const sums =
        reinterpret_cast<const float4*>(smem_.sums(group_)) + threadIdx.x % 128;
    add_sums(acc, [&](int i) { return sums[i * 128]; });
    cutlass::arch::NamedBarrier::sync(128, 1 + worker_);  // results may be staged there
  }

  const FewParams& p_;
  const FewStorage<C>& smem_;
  int worker_, group_;
  std::int32_t next_ = 0;  // of the tile's stages
  int stage_ = 0, last_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace sparsek::bsr::sm90
