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
  Tile tile;
};

/// The first of a tile's rows (or columns), where it does not depend on which block is multiplied.
template <class Element>
__device__ __forceinline__ const void* first_of(const Operand& operand, std::int64_t first) {
  return static_cast<const Element*>(operand.data) + first * operand.free_stride;
}

/// A tile of the result for each CTA. docs/wmma.md has the pipeline.
template <class Element, class C, Major kLeft, Major kRight>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    bsr_gemm_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  Tile tile;
  if (!find_tile<C>(p, blockIdx.x, &tile)) return;

  Queue<C> queue(p, storage.tile, storage.queue);
  if (threadIdx.x == 0) {
    storage.tile = tile;
    queue.begin();
  }
  // In a sampled product the operands are dense, and the tile's block says where it begins.
  const std::int64_t row = tile.row + (p.sampled ? tile.block_row * p.left.block : 0);
  const std::int64_t col = tile.col + (p.sampled ? tile.block_col * p.right.block : 0);
  const OperandLoader<C, C::kTileRows, kLeft> left(p.left, first_of<Element>(p.left, row),
                                                   tile.rows);
  OperandLoader<C, C::kTileCols, kRight> right(p.right, first_of<Element>(p.right, col), tile.cols);
  using Sums = WarpTile<Element, C, kLeft, kRight>;
  constexpr int kLastPart = Sums::kParts > 2 ? 1 : 0;
  Sums sums(p);

  bool more;
  do {
    wait_all_copies();
    __syncthreads();  // everybody is done with the queue and the stages
    const std::int32_t k_end = queue.fill();
    __syncthreads();
    more = !queue.at_end();
    // The list serves all tiles of a run, without a gap between them.
    std::int32_t tiles_to_begin = C::kRuns ? (tile.cols - 1) / C::kTileCols : 0;
    const auto places_of = [&](std::int32_t k) { return storage.queue.granules + k / kGranule; };
    std::int32_t k_copied = 0;
    const auto copy_left = [&](int stage, const auto& found) {
      if (k_copied < k_end) {
        left.copy(shared_address(storage.left[stage]), &places_of(k_copied)->left, found,
                  k_end - k_copied);
      }
    };
    const auto copy_right = [&](int stage, const auto& found) {
      if (k_copied < k_end) {
        right.copy(shared_address(storage.right[stage]), &places_of(k_copied)->right, found,
                   k_end - k_copied);
      }
      commit_copies();
      k_copied = min(k_copied + C::kTileK, k_end);
      if (C::kRuns && k_copied == k_end && tiles_to_begin > 0) {
        --tiles_to_begin;
        k_copied = 0;
        right.advance();
      }
    };
    const auto next = [](int stage) { return stage + 1 == C::kStages ? 0 : stage + 1; };
    const auto fetch = [&](int stage, int k, int set) {
      sums.fetch(shared_address(storage.left[stage]), shared_address(storage.right[stage]), k, set);
    };
#pragma unroll 1
    for (int stage = 0; stage < C::kStages - 1; ++stage) {
      const GranulePlace* places = places_of(k_copied);
      copy_left(stage, left.look(&places->left));
      copy_right(stage, right.look(&places->right));
    }
    wait_copies<C::kStages - 2>();
    __syncthreads();
    int stage = 0, free_stage = C::kStages - 1;
    int tile_cols_left = tile.cols;
#pragma unroll 1
    do {
      fetch(stage, 0, 0);
#pragma unroll 1
      for (std::int32_t k = 0; k < k_end; k += C::kTileK) {
        // What is copied meanwhile; its places are asked for early, and the copies issued between
        // products, so that neither makes the tensor cores wait.
        const GranulePlace* places = places_of(k_copied);
        const auto found_left = left.look(&places->left);
        decltype(right.look(nullptr)) found_right;
        const auto copy_part = [&](int part) {
          if (part == 0) {
            copy_left(free_stage, found_left);
            found_right = right.look(&places->right);
          }
          if (part == kLastPart) copy_right(free_stage, found_right);
        };
#pragma unroll
        for (int i = 0; i < C::kGranules; ++i) {
          if (i == C::kGranules - 1) {
            wait_copies<C::kStages - 2>();
            __syncthreads();  // the next stage is there, and everybody has fetched all of this one
          }
          const int from = i == C::kGranules - 1 ? next(stage) : stage;
          fetch(from, (i + 1) % C::kGranules, (i + 1) % 2);
          sums.multiply(i % 2, [&](int part) {
            if (i == 0) copy_part(part);
          });
          if (i == 0 && Sums::kParts == 1) copy_part(0);
        }
        free_stage = stage;
        stage = next(stage);
      }
      if constexpr (C::kRuns) {
        if (queue.at_end()) {
          sums.store(p, storage.tile, tile_cols_left);
          sums.clear();
        }
        tile_cols_left -= C::kTileCols;
      }
    } while (C::kRuns && tile_cols_left > 0);
  } while (more);
  if constexpr (!C::kRuns) sums.store(p, storage.tile, tile.cols);
#endif
}

}  // namespace sparsek::bsr::wmma
