#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/tensor.hpp>
#include <type_traits>

#include "bsr_gemm/sm90/epilogue.cuh"
#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/parts.cuh"
#include "bsr_gemm/sm90/stage_reader.cuh"
#include "bsr_gemm/sm90/sums.cuh"
#include "bsr_gemm/sm90/tiles.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// A warp group that multiplies 64 rows of the tile.
template <class C>
struct Consumer {
  using Element = typename C::Element;
  using L = Layouts<C>;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<
          Element, Element, float,
          cute::Shape<cute::Int<kGroupRows>, cute::Int<C::kTileCols>, cute::Int<kTileK>>,
          gmma(C::kSparse), gmma(C::kDense)>()));
  static constexpr int kSteps = C::kInner / 16;  // MMAs of a slice of k that is skipped as a whole

  /// Of this thread, in the workspace.
  template <class Acc>
  static __device__ float4* sums_of(const Params& p, std::int64_t place) {
    return reinterpret_cast<float4*>(p.sums) + place * (kFours<Acc> * 128) + threadIdx.x % 128;
  }

  /// A stretch's sums of a tile that it does not begin; always added in the same order.
  template <class Acc>
  static __device__ void leave_sums(const Params& p, std::int32_t stretch, int group,
                                    const Acc& acc) {
    const std::int64_t place = stretch * kConsumerGroups + group;
    auto* const to = sums_of<Acc>(p, place);
#pragma unroll
    for (int i = 0; i < kFours<Acc>; ++i) {
      to[i * 128] = make_float4(acc(4 * i), acc(4 * i + 1), acc(4 * i + 2), acc(4 * i + 3));
    }
    __threadfence();
    cutlass::arch::NamedBarrier::sync(128, 1 + group);
    if (threadIdx.x % 128 == 0) ptx::store_release(p.sums_ready + place, 1);
  }

  template <class Acc>
  static __device__ void add_left(const Params& p, std::int32_t stretch, int group, Acc& acc) {
    const std::int64_t place = stretch * kConsumerGroups + group;
    while (ptx::load_acquire(p.sums_ready + place) == 0) {
    }
    const auto* const from = sums_of<Acc>(p, place);
    add_sums(acc, [&](int i) { return __ldcg(from + i * 128); });
  }

  /// Walk: the tiles of this CTA.
  template <class Walk>
  static __device__ void run(const Params& p, SharedStorage<C>& smem, int group) {
    using namespace cute;
    const int thread = threadIdx.x % 128;
    TiledMma mma;
    mma.accumulate_ = GMMA::ScaleOut::One;
    auto thread_mma = mma.get_slice(thread);
    auto acc = partition_fragment_C(mma, Shape<Int<kGroupRows>, Int<C::kTileCols>>{});

    Tensor sA = make_tensor(make_smem_ptr(smem.sparse[0]), typename L::Sparse{});  // (row, k)
    Tensor sB = make_tensor(make_smem_ptr(smem.dense[0]), typename L::Dense{});    // (col, k)
    Tensor gA = local_tile(sA, Shape<Int<kGroupRows>, Int<kTileK>>{}, make_coord(group, _0{}));
    Tensor rA = thread_mma.partition_fragment_A(gA);  // (MMA, 1, k / 16)
    Tensor rB = thread_mma.partition_fragment_B(sB);  // (MMA, 1, k / 16)
    constexpr int kStageA = L::kSparseElements * sizeof(Element) / 16;
    constexpr int kStageB = L::kDenseElements * sizeof(Element) / 16;

    const std::uint32_t my_bits = kWholeStage << group;  // of KTiles::mask_of
    StageReader<C> reader(smem);
    Walk tiles(p);
    while (tiles.valid()) {
      const Tile tile = tiles.take();
      const auto steps = static_cast<std::int32_t>(uniform(tile.steps));
      const std::int32_t row = tile.group * kTileRows + group * kGroupRows;
      const std::int32_t own_row = Epilogue<C>::row_of_thread(p, row);
      const std::int32_t end_col = tile.is_short ? min(p.cols, tile.col + p.last_cols) : p.cols;
      Epilogue<C>::ask_for_c(p, row, tile.col, end_col);
      clear(acc);
      warpgroup_fence_operand(acc);
      // Where both operands are sparse, the number of steps is not known: kEndOfTile comes.
#pragma unroll 1
      for (int step = 0; C::kBothSparse || step < steps; ++step) {
        reader.wait_full();
        const std::uint32_t mask = reader.mask();
        if (C::kBothSparse && mask == kEndOfTile) break;
        const std::uint32_t work = mask & my_bits;
        Tensor a = make_tensor(rA.data() + reader.stage() * kStageA, rA.layout());
        Tensor b = make_tensor(rB.data() + reader.stage() * kStageB, rB.layout());
        // Each way with an arrival of its own: one before the branch makes the compiler wait for
        // every WGMMA.
        const auto multiply = [&](auto first, auto count) {
          warpgroup_fence_operand(acc);
          warpgroup_arrive();
#pragma unroll
          for (int i = 0; i < decltype(count)::value; ++i) {
            gemm(mma, a(_, _, first + i), b(_, _, first + i), acc);
          }
          warpgroup_commit_batch();
          warpgroup_fence_operand(acc);
        };
        if (work == my_bits || (kSteps == kTileK / 16 && work != 0)) {
          multiply(Int<0>{}, Int<kTileK / 16>{});
        } else if constexpr (kSteps < kTileK / 16) {
          for_each(make_seq<kTileK / 16 / kSteps>{}, [&](auto slice) {
            constexpr int kFirst = decltype(slice)::value * kSteps;
            if ((work >> kFirst * kConsumerGroups & ((1u << kSteps * kConsumerGroups) - 1)) != 0) {
              multiply(Int<kFirst>{}, Int<kSteps>{});
            }
          });
        }
        reader.advance(work == 0);
      }
      reader.finish();
      warpgroup_fence_operand(acc);
      if constexpr (C::kOneTile) {  // the other group may still read the stages
        cutlass::arch::NamedBarrier::sync(128 * kConsumerGroups, kConsumersBarrier);
      }
      if constexpr (C::kParts) {
        if (p.log2_split > 0 && !Parts<C>::add(smem, 1 << p.log2_split, group, acc)) return;
      }
      constexpr bool kStretches = std::is_same_v<Walk, StretchTiles<C::kTileCols>>;
      if constexpr (kStretches) {
        if (tile.left) {
          leave_sums(p, tile.stretch, group, acc);
          continue;
        }
#pragma unroll 1
        for (int other = 1; other <= tile.others; ++other) {
          add_left(p, tile.stretch + other, group, acc);
        }
      }
      // Not where registers do not last.
      constexpr bool kAllInUnits =
          C::kOneSparse && !kStretches && !(C::kLongRows && !C::kSparseByTma);
      Epilogue<C>::template run<kAllInUnits>(p, smem.staging_of(group), row, own_row, tile.col,
                                             end_col, 1 + group, acc);
    }
  }
};

}  // namespace sparsek::bsr::sm90
