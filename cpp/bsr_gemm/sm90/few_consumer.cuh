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

/// A warp group that multiplies 64 columns of every tile.
template <class C>
class FewConsumer {
 public:
  using Element = typename C::Element;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<
          Element, Element, float,
          cute::Shape<cute::Int<64>, cute::Int<C::kSide>, cute::Int<C::kSide>>, gmma(C::kDense),
          gmma(C::kSparse)>()));

  __device__ FewConsumer(const FewParams& p, const FewStorage<C>& smem, int group)
      : p_(p), smem_(smem), group_(group) {}

  __device__ void run() {
    using namespace cute;
    cluster_wait();  // before anything is sent
    TiledMma mma;
    auto acc = partition_fragment_C(mma, Shape<_64, Int<C::kSide>>{});
    const std::int32_t own_row = Out::row_of_thread(p_, group_ * 64);
    const FewPart* parts = p_.deal.parts + blockIdx.x * kFewMostParts;
    FewPart part = *parts;
    while (part.row != kNoPart) {
      const FewPart next = *++parts;
      multiply(mma, part.stages, acc);
      if (part.shared != 0 && blockIdx.x % 2 == 0) {
        send(acc);
      } else {
        if (part.shared != 0) add(acc);
        Out::run(p_, smem_.staging(group_), group_ * 64, own_row, part.row, p_.cols, 1 + group_,
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
    Tensor sA =
        make_tensor(make_smem_ptr(smem_.dense(0, 0, group_)), FewStorage<C>::dense_layout());
    Tensor sB = make_tensor(make_smem_ptr(smem_.sparse(0, 0)), FewStorage<C>::sparse_layout());
    Tensor rA = thread_mma.partition_fragment_A(sA);  // (MMA, 1, k / 16)
    Tensor rB = thread_mma.partition_fragment_B(sB);
    const int square_a = smem_.groups() * (C::kDenseElements / C::kSquares / 8);  // in 16 bytes
    constexpr int kSquareB = C::kSparseElements / C::kSquares / 8;
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
        Tensor a = make_tensor(rA.data() + at * square_a, rA.layout());
        Tensor b = make_tensor(rB.data() + at * kSquareB, rB.layout());
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
