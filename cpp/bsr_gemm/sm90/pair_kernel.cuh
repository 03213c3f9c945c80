#pragma once

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/begin.cuh"
#include "bsr_gemm/sm90/epilogue.cuh"
#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/pair_producer.cuh"
#include "bsr_gemm/sm90/stage_reader.cuh"
#include "primitives/quad.cuh"
#include "primitives/warp_mma.cuh"

// Two sparse operands of blocks of 64 and 128, and a result of 16 bits with contiguous rows: a CTA
// computes tiles until none is left, and its producer takes, lists and loads the next one while
// this one is multiplied and stored. The sums go to memory from registers, since the stages, all of
// the shared memory that half an SM has, are being filled meanwhile.

namespace sparsek::bsr::sm90 {

/// A warp group that multiplies 64 rows of the tiles.
template <class C>
class PairConsumer {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;
  static_assert(C::kInner == 64);  // a stage is multiplied as a whole, or not

  __device__ PairConsumer(const Params& p, SharedStorage<C>& smem, int group)
      : p_(p), smem_(smem), group_(group) {}

  __device__ void run() {
    using namespace cute;
    auto mma =
        make_tiled_mma(GMMA::ss_op_selector<Element, Element, float,
                                            Shape<Int<kGroupRows>, Int<C::kTileCols>, Int<kTileK>>,
                                            gmma(C::kSparse), gmma(C::kDense)>());
    mma.accumulate_ = GMMA::ScaleOut::One;
    auto thread_mma = mma.get_slice(threadIdx.x % 128);
    auto acc = partition_fragment_C(mma, Shape<Int<kGroupRows>, Int<C::kTileCols>>{});

    Tensor sA = make_tensor(make_smem_ptr(smem_.sparse[0]), typename L::Sparse{});  // (row, k)
    Tensor sB = make_tensor(make_smem_ptr(smem_.dense[0]), typename L::Dense{});    // (col, k)
    Tensor gA = local_tile(sA, Shape<Int<kGroupRows>, Int<kTileK>>{}, make_coord(group_, _0{}));
    Tensor rA = thread_mma.partition_fragment_A(gA);  // (MMA, 1, k / 16)
    Tensor rB = thread_mma.partition_fragment_B(sB);  // (MMA, 1, k / 16)
    constexpr int kStageA = L::kSparseElements * sizeof(Element) / 16;
    constexpr int kStageB = L::kDenseElements * sizeof(Element) / 16;

    StageReader<C> reader(smem_);
    for (bool ended = false; !ended;) {
      clear(acc);
      std::int32_t row_group = 0, col_group = 0;
      for (bool last = false; !last;) {
        reader.wait_full();
        const std::uint32_t mask = reader.mask();
        // Noted, not left for: ptxas serialises WGMMA in a loop with a way out in its middle.
        ended = (mask & kEndOfTiles) != 0;
        last = (mask & (kEndOfTile | kLastOfTile | kEndOfTiles)) != 0;
        if (last) {  // read as a mask is
          const int2 groups = threadIdx.x % 32 == 0 ? smem_.groups[reader.stage()] : int2{};
          row_group = static_cast<std::int32_t>(uniform(groups.x));
          col_group = static_cast<std::int32_t>(uniform(groups.y));
        }
        const bool none = (mask & (kWholeStage << group_)) == 0;
        if (!none) {
          Tensor a = make_tensor(rA.data() + reader.stage() * kStageA, rA.layout());
          Tensor b = make_tensor(rB.data() + reader.stage() * kStageB, rB.layout());
          warpgroup_fence_operand(acc);
          warpgroup_arrive();
#pragma unroll
          for (int k = 0; k < kTileK / 16; ++k) gemm(mma, a(_, _, k), b(_, _, k), acc);
          warpgroup_commit_batch();
          warpgroup_fence_operand(acc);
        }
        reader.advance(none);
      }
      reader.finish();
      warpgroup_fence_operand(acc);
      if (!ended) store(row_group * kTileRows + group_ * kGroupRows, col_group * kTileRows, acc);
    }
  }

 private:
  /// 16 bytes a lane, 64 bytes beside each other in each of 8 rows.
  template <class Acc>
  __device__ void store(std::int32_t first_row, std::int32_t first_col, const Acc& acc) const {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const float alpha = p_.result.alpha;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t row = first_row + warp * 16 + half * 8 + lane / 4;
      Element* const out =
          static_cast<Element*>(p_.result.out.data) + row * p_.result.out.sparse_stride;
#pragma unroll
      for (int quarter = 0; quarter < C::kTileCols / 32; ++quarter) {
        std::uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (quarter * 4 + i) * 4 + half * 2;
          r[i] = pack<Element>(alpha * acc(at), alpha * acc(at + 1));
        }
        transpose_quad(r);
        const std::int32_t col = first_col + quarter * 32 + lane % 4 * 8;
        if (row < p_.rows && col < p_.cols) {
          // Streamed, so that the operands stay in L2.
          __stcs(reinterpret_cast<uint4*>(out + col), make_uint4(r[0], r[1], r[2], r[3]));
        }
      }
    }
  }

  const Params& p_;
  SharedStorage<C>& smem_;
  int group_;
};

template <class C>
__global__ void __launch_bounds__(C::kBoundThreads, C::kCtasPerSm)
    pair_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char raw_smem[];
  auto& smem = begin<C>(raw_smem, p.sparse_map, p.dense_map);
  const int group = warp_group();
  if (group == kConsumerGroups) {
    PairProducer<C, true>(p, smem).run();
  } else {
    PairConsumer<C>(p, smem, group).run();
  }
#endif
}

}  // namespace sparsek::bsr::sm90
