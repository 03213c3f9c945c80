#pragma once

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/sampled_epilogue.cuh"
#include "bsr_gemm/sm90/sampled_storage.cuh"
#include "bsr_gemm/sm90/sampled_tiles.cuh"
#include "bsr_gemm/sm90/stage_reader.cuh"
#include "bsr_gemm/sm90/sums.cuh"

namespace sparsek::bsr::sm90 {

/// A warp group that multiplies 64 rows of a sampled product's tiles, by the units of columns that
/// each has.
template <class C>
class SampledConsumer {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ SampledConsumer(const SampledParams& p, SampledStorage<C>& smem, int group)
      : p_(p),
        smem_(smem),
        group_(group),
        tiles_(p),
        epilogue_(p, smem, group),
        reader_(smem, tiles_.stages()) {}

  __device__ __forceinline__ void run() {
    if (!tiles_.shares()) {
      while (tiles_.valid()) multiply<false>(tiles_.take());
      return;
    }
    // Code of its own: with that of whole tiles it would need more registers than there are.
    // At most one tile; as an `if`, ptxas would serialise the WGMMAs (C7515).
    SampledTile tile{};
    while (tiles_.valid()) {
      tile = tiles_.take();
      multiply<true>(tile);
    }
    const std::int32_t block = epilogue_.look_up(tile);
    wait_for_grid();
    epilogue_.tell(block);
    add_parts(tile);
  }

 private:
  template <bool kShared>
  __device__ __forceinline__ void multiply(const SampledTile& tile) {
    if (cols_of(p_, tile) <= kSampledUnit) {
      multiply<kShared, kSampledUnit>(tile);
    } else if (cols_of(p_, tile) <= 2 * kSampledUnit) {
      multiply<kShared, 2 * kSampledUnit>(tile);
    } else {
      multiply<kShared, 3 * kSampledUnit>(tile);
    }
  }

  template <bool kShared, int kCols>
  __device__ __forceinline__ void multiply(const SampledTile& tile) {
    using namespace cute;
    auto mma = make_tiled_mma(GMMA::ss_op_selector<Element, Element, float,
                                                   Shape<Int<kGroupRows>, Int<kCols>, Int<kTileK>>,
                                                   gmma(C::kSparse), gmma(C::kDense)>());
    mma.accumulate_ = GMMA::ScaleOut::One;
    auto thread_mma = mma.get_slice(threadIdx.x % 128);
    auto acc = partition_fragment_C(mma, Shape<Int<kGroupRows>, Int<kCols>>{});

    constexpr auto kColumns = L::template operand<C::kDense, L::kDenseInner, kCols>();
    Tensor sA = make_tensor(make_smem_ptr(smem_.ring[0]), typename L::Sparse{});  // (row, k)
    Tensor sB = make_tensor(make_smem_ptr(smem_.ring[1]), kColumns);              // (col, k)
    Tensor gA = local_tile(sA, Shape<Int<kGroupRows>, Int<kTileK>>{}, make_coord(group_, _0{}));
    Tensor rA = thread_mma.partition_fragment_A(gA);  // (MMA, 1, k / 16)
    Tensor rB = thread_mma.partition_fragment_B(sB);  // (MMA, 1 or 2, k / 16)
    const int stage_size = tiles_.pieces() * (SampledStorage<C>::kPiece / 8);  // in 16 bytes

    std::int32_t block = -1;
    if constexpr (!kShared) block = epilogue_.look_up(tile);
    clear(acc);
    for (int step = tile.begin_step; step < tile.end_step; ++step) {
      reader_.wait_full();
      Tensor a = make_tensor(rA.data() + reader_.stage() * stage_size, rA.layout());
      Tensor b = make_tensor(rB.data() + reader_.stage() * stage_size, rB.layout());
      warpgroup_fence_operand(acc);
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k) gemm(mma, a(_, _, k), b(_, _, k), acc);
      warpgroup_commit_batch();
      warpgroup_fence_operand(acc);
      reader_.advance(false);
    }
    reader_.finish();
    warpgroup_fence_operand(acc);
    if constexpr (kShared) {
      leave(acc);
    } else {
      epilogue_.tell(block);
      epilogue_.template store<kCols>(tile, 0, acc);
    }
  }

  /// Where a CTA leaves the sums of its part of a tile: this thread's, in fours 128 apart.
  __device__ float4* sums_of(std::uint32_t cta) const {
    constexpr int kMostFours = kGroupRows * C::kTileCols / 4;
    return reinterpret_cast<float4*>(p_.sums) +
           std::int64_t{cta * kConsumerGroups + group_} * kMostFours + threadIdx.x % 128;
  }

  template <class Acc>
  __device__ void leave(const Acc& acc) {
    float4* const sums = sums_of(blockIdx.x);
#pragma unroll
    for (int i = 0; i < kFours<Acc>; ++i) {
      sums[i * 128] = make_float4(acc(4 * i), acc(4 * i + 1), acc(4 * i + 2), acc(4 * i + 3));
    }
  }

  /// Adds what all CTAs of a tile have left, in the order of its parts, and stores it: some columns
  /// each.
  __device__ void add_parts(const SampledTile& tile) {
    constexpr int kCols = 32;  // at a time
    auto sums = cute::make_tensor<float>(cute::Shape<cute::Int<kGroupRows * kCols / 128>>{});
    const float4* const first = sums_of(blockIdx.x - tile.part);
    const std::int64_t stride = sums_of(1) - sums_of(0);
#pragma unroll 1
    for (int col = tile.part * kCols; col < cols_of(p_, tile); col += tile.parts * kCols) {
      const float4* const from = first + col / kCols * (kFours<decltype(sums)> * 128);
      cute::clear(sums);
#pragma unroll 4
      for (int part = 0; part < tile.parts; ++part) {
        add_sums(sums, [&](int i) { return __ldcg(from + part * stride + i * 128); });
      }
      epilogue_.template store<kCols>(tile, col, sums);
    }
  }

  const SampledParams& p_;
  SampledStorage<C>& smem_;
  int group_;
  SampledTiles tiles_;
  SampledEpilogue<C> epilogue_;
  StageReader<C, SampledStorage<C>> reader_;
};

}  // namespace sparsek::bsr::sm90
