#pragma once

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/epilogue.cuh"
#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/sampled_storage.cuh"
#include "bsr_gemm/sm90/sampled_tiles.cuh"
#include "bsr_gemm/sm90/stage_reader.cuh"

namespace sparsek::bsr::sm90 {

/// A warp group that multiplies 64 rows of a sampled product's tiles, by the units of columns that
/// each has.
template <class C>
class SampledConsumer {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ SampledConsumer(const SampledParams& p, SampledStorage<C>& smem, int group)
      : p_(p), smem_(smem), group_(group), tiles_(p), reader_(smem, tiles_.stages()) {}

  __device__ void run() {
    while (tiles_.valid()) {
      const SampledTile tile = tiles_.take();
      const std::int32_t num_cols = tile.count << p_.log2_block_cols;
      if (num_cols <= kSampledUnit) {
        multiply<kSampledUnit>(tile);
      } else if (num_cols <= 2 * kSampledUnit) {
        multiply<2 * kSampledUnit>(tile);
      } else {
        multiply<3 * kSampledUnit>(tile);
      }
    }
  }

 private:
  template <int kCols>
  __device__ void multiply(const SampledTile& tile) {
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

    clear(acc);
    for (int step = 0; step < p_.steps; ++step) {
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
    store<kCols>(tile, acc);
  }

  template <int kCols, class Acc>
  __device__ void store(const SampledTile& tile, const Acc& acc) {
    const int log2_rows = p_.log2_block_rows, log2_cols = p_.log2_block_cols;
    const int log2_rows_in_group = max(0, 7 - log2_rows);
    const std::int32_t num_cols = tile.count << log2_cols;
    store_by_fours<kCols, 64>(
        smem_.staging_of(group_), p_.result.alpha, p_.result.rows_inner, false, num_cols,
        1 + group_, acc, [&](std::int32_t row, std::int32_t col, float (&values)[4]) {
          row += group_ * kGroupRows;
          if (p_.whole) return put_whole(tile, row, col, values);
          if (col >= num_cols) return;
          const std::int64_t entry = tile.first + (col >> log2_cols);
          const std::int64_t block =
              __ldg(p_.lists.values + (entry << log2_rows_in_group) + (row >> log2_rows));
          if (block < 0) return;  // others of these rows have one there
          row &= (1 << log2_rows) - 1;
          col &= (1 << log2_cols) - 1;
          put_four<Element>(
              p_.result,
              block * p_.out_block_stride + row * p_.result.out.sparse_stride +
                  col * p_.result.out.dense_stride,
              block * p_.c_block_stride + row * p_.result.c.sparse_stride +
                  col * p_.result.c.dense_stride,
              p_.result.rows_inner ? p_.result.c.sparse_stride : p_.result.c.dense_stride, 4,
              values);
        });
  }

  /// Of a result that is dense, as far as it goes.
  __device__ void put_whole(const SampledTile& tile, std::int32_t row, std::int32_t col,
                            float (&values)[4]) {
    row += tile.group * kTileRows;
    col += static_cast<std::int32_t>(tile.first) << p_.log2_block_cols;
    if (row >= p_.rows || col >= p_.cols) return;
    put_four<Element>(p_.result,
                      row * p_.result.out.sparse_stride + col * p_.result.out.dense_stride,
                      row * p_.result.c.sparse_stride + col * p_.result.c.dense_stride,
                      p_.result.rows_inner ? p_.result.c.sparse_stride : p_.result.c.dense_stride,
                      min(4, p_.result.rows_inner ? p_.rows - row : p_.cols - col), values);
  }

  const SampledParams& p_;
  SampledStorage<C>& smem_;
  int group_;
  SampledTiles tiles_;
  StageReader<C, SampledStorage<C>> reader_;
};

}  // namespace sparsek::bsr::sm90
