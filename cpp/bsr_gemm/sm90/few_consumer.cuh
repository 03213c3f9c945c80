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

/// A warp group that multiplies its columns of every tile.
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

  __device__ FewConsumer(const FewParams& p, const FewStorage<C>& smem, int group)
      : p_(p), smem_(smem), group_(group) {}

  __device__ void run() {
    using namespace cute;
    cluster_wait();  // before anything is sent
    TiledMma mma;
    auto acc = partition_fragment_C(mma, Shape<_64, Int<C::kTileCols>>{});
    const std::int32_t first_col = group_ * C::kGroupCols;
    const FewPart* parts = p_.deal.parts + blockIdx.x * kFewMostParts;
    FewPart part = *parts;
    while (part.row != kNoPart) {
      const FewPart next = *++parts;
      multiply(mma, part.stages, acc);
      if (part.shared != 0 && blockIdx.x % 2 == 0) {
        send(acc);
      } else {
        if (part.shared != 0) add(acc);
        const std::int32_t along_m = kRowsAlongM ? part.row : first_col;
        const std::int32_t along_n = kRowsAlongM ? first_col : part.row;
        Out::template run<false>(p_, smem_.staging(group_), along_m,
                                 Out::row_of_thread(p_, along_m), along_n, p_.cols, 1 + group_,
                                 acc);
      }
      part = next;
    }
  }

 private:
  using Out = Epilogue<C, FewParams>;

  template <class Acc>
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
#pragma unroll 1
    for (std::int32_t step = 0; step < steps; ++step) {
      wait(smem_.full(stage_), phase_);
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
      if (step > 0) {
        warpgroup_wait<1>();
        release(last_);
      }
      last_ = stage_;
      if (++stage_ == smem_.stages()) {
        stage_ = 0;
        phase_ ^= 1;
      }
    }
    warpgroup_wait<0>();
    if (steps > 0) release(last_);
    warpgroup_fence_operand(acc);
  }

  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) arrive(smem_.empty(stage));
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
    cutlass::arch::NamedBarrier::sync(128, 1 + group_);  // results may be staged there
  }

  const FewParams& p_;
  const FewStorage<C>& smem_;
  int group_;
  int stage_ = 0, last_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace sparsek::bsr::sm90
