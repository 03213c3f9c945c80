#pragma once

#include "bsr_gemm/wmma/loader.cuh"
#include "bsr_gemm/wmma/warp_tile.cuh"

namespace sparsek::bsr::wmma {

template <class C>
struct Storage {
  static constexpr int kLeftBytes = operand_bytes(C::kTileRows, C::kTileK);
  static constexpr int kRightBytes = operand_bytes(C::kTileCols, C::kTileK);

  alignas(128) unsigned char left[C::kStages][kLeftBytes];
  unsigned char right[C::kStages][kRightBytes];
  QueueStorage queue;
};

/// The first of a tile's rows (or columns), where it does not depend on which block is multiplied.
template <class Element>
__device__ __forceinline__ const void* first_of(const Operand& operand, std::int64_t first) {
  return static_cast<const Element*>(operand.data) + first * operand.free_stride;
}

/// A tile of the result for each CTA. docs/wmma.md has the pipeline.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    bsr_gemm_kernel(const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  Tile tile;
  if (!find_tile<C>(p, blockIdx.x, &tile)) return;

  Queue<C> queue(p, tile, storage.queue);
  // In a sampled product the operands are dense, and the tile's block says where it begins.
  const std::int64_t row = tile.row + (p.sampled ? tile.block_row * p.left.block : 0);
  const std::int64_t col = tile.col + (p.sampled ? tile.block_col * p.right.block : 0);
  const OperandLoader<C, C::kTileRows> left(p.left, first_of<Element>(p.left, row), tile.rows);
  const OperandLoader<C, C::kTileCols> right(p.right, first_of<Element>(p.right, col), tile.cols);
  WarpTile<Element, C> sums(p.left.k_inner || !p.left.vectors,
                            p.right.k_inner || !p.right.vectors);

  while (true) {
    __syncthreads();  // everybody is done with the queue and the stages
    const std::int32_t k_end = queue.fill();
    if (k_end == 0) break;
    __syncthreads();
    const auto load = [&](std::int32_t k, int stage) {
      if (k < k_end) {
        const GranulePlace* places = storage.queue.granules + k / kGranule;
        // A granule past the end is not read, but its place is.
        const auto last = (k_end - k + kGranule - 1) / kGranule - 1;
        left.load(shared_address(storage.left[stage]), k_end - k,
                  [&](int g) { return places[min(g, last)].left; });
        right.load(shared_address(storage.right[stage]), k_end - k,
                   [&](int g) { return places[min(g, last)].right; });
      }
      commit_copies();
    };
#pragma unroll
    for (int stage = 0; stage < C::kStages - 1; ++stage) load(stage * C::kTileK, stage);
    int stage = 0;
    for (std::int32_t k = 0; k < k_end; k += C::kTileK) {
      wait_copies<C::kStages - 2>();
      __syncthreads();  // the stage is there, and everybody is done with the one before
      const int before = stage == 0 ? C::kStages - 1 : stage - 1;
      load(k + (C::kStages - 1) * C::kTileK, before);
      sums.multiply(shared_address(storage.left[stage]), shared_address(storage.right[stage]));
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
    }
  }
  wait_all_copies();
  sums.store(p, tile);
}

}  // namespace sparsek::bsr::wmma
