#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/tiles.cuh"
#include "primitives/barrier.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// The warps that fill the stages. A K tile is assembled from boxes: pieces of the blocks that the
/// rows of the group have at these k blocks, and the dense operand's rows that belong to them.
/// Lane i of every warp knows box i.
template <class C>
class Producer {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ Producer(const Params& p, SharedStorage<C>& smem)
      : p_(p), smem_(smem), thread_(threadIdx.x % 128) {
    log2_rows_ = C::kSparse == Major::k ? min(p.log2_block_rows, kLog2GroupRows) : kLog2Inner;
    log2_k_ = C::kSparse == Major::k ? kLog2Inner : min(p.log2_block_k, kLog2TileK);
    const int parts = kTileK >> log2_k_;
    sparse_ = {(lane() / parts) << log2_rows_, (lane() % parts) << log2_k_};
    if (sparse_.row < kTileRows) {
      for (int k = sparse_.k / 16; k < (sparse_.k + (1 << log2_k_)) / 16; ++k) {
        bits_ |= 1u << (k * kConsumerGroups + sparse_.row / kGroupRows);
      }
    }
    // One box for a slice of k, or one for each 64 columns of it.
    constexpr int kParts = kTileK / C::kInner;
    const bool whole = C::kDense == Major::k || p.dense_in_chunks;
    dense_ = {lane() / kParts * (whole ? C::kTileCols : 64), lane() % kParts * C::kInner};
    log2_rows_in_group_ = max(0, kLog2GroupRows + 1 - p.log2_block_rows);
    if constexpr (!C::kSparseByTma && C::kSparse == Major::k) {
      for (int i = 0; i < 2; ++i) {
        lines_[i] = line_of_lane((i * 64 + warp() * 16) & block_row_mask());
      }
    }
  }

  template <class Walk>
  __device__ void run() {
    if constexpr (C::kStageForEachWarp) {
      run_alone<Walk>();
    } else {
      run_together<Walk>();
    }
  }

 private:
  using Hint = cute::TMA::CacheHintSm90;
  // A product with few columns reads blocks once.
  static constexpr auto kBlocksHint =
      static_cast<std::uint64_t>(C::kParts ? Hint::EVICT_FIRST : Hint::EVICT_NORMAL);
  static constexpr auto kDenseHint =
      static_cast<std::uint64_t>(C::kParts ? Hint::EVICT_LAST : Hint::EVICT_NORMAL);
  static constexpr int kWarps = 4;
  static constexpr bool kShortTiles = has_short_tiles(C::kInner, C::kDense);
  static constexpr int kLog2Inner = C::kInner == 16 ? 4 : C::kInner == 32 ? 5 : 6;
  static constexpr int kLog2TileK = 6;
  static constexpr int kLog2GroupRows = 6;
  static_assert(kTileRows / C::kInner * (kTileK / C::kInner) <= 32);
  static_assert(kTileK / C::kInner * (C::kTileCols / 64) <= 32);

  /// What a lane knows of a K tile: the block of its sparse box, the k block of its dense one.
  struct Step {
    std::int32_t value;
    std::int32_t col;
    int k;  // along the list
    std::int32_t tile_col;
    bool is_short;
  };
  struct Box {
    int row;
    int k;
  };

  /// Each warp fills every fourth K tile's stage.
  template <class Walk>
  __device__ void run_alone() {
    int stage = warp();
    std::uint32_t phase = 0;
    Walk tiles(p_);
    Tile tile{};
    int t = warp();  // K tile of the tile
    while (true) {
      while (t >= tile.steps) {
        t -= tile.steps;
        if (!tiles.valid()) return;
        tile = tiles.take();
        if constexpr (C::kOneTile) prefetch_lists(tile);
      }
      const Step step = fetch(tile, t);
      const std::uint32_t mask = mask_of(step);
      wait(&smem_.empty[stage], phase ^ 1);
      load(step, mask, stage);
      t += kWarps;
      if constexpr (C::kStages > kWarps) stage += kWarps;
      if (C::kStages == kWarps || stage >= C::kStages) {
        if constexpr (C::kStages > kWarps) stage -= C::kStages;
        phase ^= 1;
      }
    }
  }

  /// All warps fill each stage.
  template <class Walk>
  __device__ void run_together() {
    int stage = 0;
    std::uint32_t phase = 0;
    Walk tiles(p_);
    while (tiles.valid()) {
      const Tile tile = tiles.take();
      if constexpr (C::kOneTile) prefetch_lists(tile);
      // Two ahead: they arrive while the stages before are waited for.
      Step step = fetch(tile, 0), next = fetch(tile, 1);
      for (int t = 0; t < tile.steps; ++t) {
        const Step now = step;
        step = next;
        next = fetch(tile, t + 2);
        const std::uint32_t mask = mask_of(now);
        wait(&smem_.empty[stage], phase ^ 1);
        load(now, mask, stage);
        if (++stage == C::kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
    }
  }

  __device__ int lane() const { return thread_ % 32; }
  __device__ int warp() const { return thread_ / 32; }
  __device__ int block_row_mask() const { return (1 << p_.log2_block_rows) - 1; }
  __device__ int block_k_mask() const { return (1 << p_.log2_block_k) - 1; }

  /// A CTA that walks along a list once meets each line of it for the first time.
  __device__ void prefetch_lists(const Tile& tile) const {
    const auto prefetch = [&](const std::int32_t* list, int log2_size) {
      const char* const begin = reinterpret_cast<const char*>(list + (tile.begin << log2_size));
      const std::int64_t bytes = (tile.end - tile.begin) << (log2_size + 2);
      for (std::int64_t at = thread_ * 128; at < bytes; at += 128 * 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + at));
      }
    };
    prefetch(p_.lists.cols, 0);
    prefetch(p_.lists.values, log2_rows_in_group_);
  }

  __device__ Step fetch(const Tile& tile, int t) const {
    Step step{-1, p_.absent_col, t * kTileK, tile.col, tile.is_short};
    std::int64_t entry = tile.begin + ((step.k + sparse_.k) >> p_.log2_block_k);
    if (bits_ != 0 && entry < tile.end) {
      step.value =
          p_.lists.values[(entry << log2_rows_in_group_) + (sparse_.row >> p_.log2_block_rows)];
    }
    entry = tile.begin + ((step.k + dense_.k) >> p_.log2_block_k);
    if (entry < tile.end) step.col = p_.lists.cols[entry];
    return step;
  }

  /// Bit k / 16 * 2 + row / 64: whether some block lies there.
  __device__ std::uint32_t mask_of(const Step& step) const {
    return __reduce_or_sync(0xffffffffu, step.value >= 0 ? bits_ : 0u);
  }

  __device__ void load(const Step& step, std::uint32_t mask, int stage) {
    const bool wanted = (bits_ & mask) != 0, present = wanted && step.value >= 0;
    const bool by_tma = C::kZerosByThreads ? present : wanted;
    std::uint32_t bytes = sizeof(Element) * kTileK * (is_short(step) ? p_.last_cols : C::kTileCols);
    if constexpr (C::kSparseByTma) {
      const int boxes = __popc(__ballot_sync(0xffffffffu, by_tma));
      bytes += sizeof(Element) * (boxes << (log2_k_ + log2_rows_));
    }
    const bool first = (C::kStageForEachWarp ? lane() : thread_) == 0;
    if (first) {
      smem_.masks[stage] = mask;
      expect(&smem_.full[stage], bytes);
      if constexpr (!C::kZerosByThreads) arrive(&smem_.full[stage]);
    }
    if (C::kStageForEachWarp || lane() % kWarps == warp()) load_dense(step, stage);
    if constexpr (C::kSparseByTma) {
      if (by_tma) load_sparse(step, stage);
    } else {
      copy_sparse(step, mask, stage);
    }
    if constexpr (C::kZerosByThreads) {
      write_zeros(wanted && !present, stage);
      if (first) arrive(&smem_.full[stage]);
    }
  }

  /// Whether the tile has fewer columns than others, and no more are copied.
  __device__ bool is_short(const Step& step) const { return kShortTiles && step.is_short; }

  /// The warp writes the boxes of the lanes that want them.
  __device__ void write_zeros(bool wanted, int stage) {
    std::uint32_t boxes = __ballot_sync(0xffffffffu, wanted);
    if (boxes == 0) return;
    constexpr int kAtOnce = C::kInner * C::kInner * sizeof(Element);  // the smallest box
    const std::uint32_t box =
        shared_address(&smem_.sparse[stage][L::sparse_box(sparse_.row, sparse_.k)]);
    const int bytes = static_cast<int>(sizeof(Element)) << (log2_k_ + log2_rows_);
    for (; boxes != 0; boxes &= boxes - 1) {
      const std::uint32_t to =
          __shfl_sync(0xffffffffu, box, __ffs(boxes) - 1) + static_cast<std::uint32_t>(lane()) * 16;
#pragma unroll 1
      for (int at = 0; at < bytes; at += kAtOnce) {
#pragma unroll
        for (int i = 0; i < kAtOnce; i += 32 * 16) store_four(to + at + i, 0, 0, 0, 0);
      }
    }
    cutlass::arch::fence_view_async_shared();  // tensor cores read them
    __syncwarp();
  }

  __device__ void load_dense(const Step& step, int stage) {
    const Box box = dense_;
    if (box.row >= C::kTileCols) return;
    Element* const to = &smem_.dense[stage][L::dense_box(box.row, box.k)];
    const int k = (step.col << p_.log2_block_k) + ((step.k + box.k) & block_k_mask());
    const int col = step.tile_col + box.row;
    const CUtensorMap* const map = is_short(step) ? &p_.last_dense_map : &p_.dense_map;
    if constexpr (C::kDense == Major::k) {
      cute::SM90_TMA_LOAD_2D::copy(map, &smem_.full[stage], kDenseHint, to, k, col);
    } else if (p_.dense_in_chunks) {
      cute::SM90_TMA_LOAD_3D::copy(map, &smem_.full[stage], kDenseHint, to, 0, k, col / 64);
    } else if (!kShortTiles || col < p_.cols) {
      cute::SM90_TMA_LOAD_3D::copy(map, &smem_.full[stage], kDenseHint, to, col, k, 0);
    }
  }

  __device__ void load_sparse(const Step& step, int stage) {
    const Box box = sparse_;
    int row = box.row & block_row_mask();
    const int k = (step.k + box.k) & block_k_mask();
    if (C::kMayFold && p_.folded) row /= 2;  // a line
    cute::SM90_TMA_LOAD_3D::copy(&p_.sparse_map, &smem_.full[stage], kBlocksHint,
                                 &smem_.sparse[stage][L::sparse_box(box.row, box.k)],
                                 C::kSparse == Major::k ? k : row, C::kSparse == Major::k ? row : k,
                                 step.value);
  }

  /// Each warp copies patches of 16 x 16, a lane 16 bytes of each; zeros where a row has no block.
  /// Without branches, so that the patches' addresses are computed side by side: a warp on its own
  /// waits for each instruction.
  __device__ void copy_sparse(const Step& step, std::uint32_t mask, int stage) {
    static_assert(C::kInner == 16 && L::kSparseElements == 32 * 256);
    const std::uint32_t to = shared_address(smem_.sparse[stage]) + L::swizzled(thread_ * 16);
    const uint4* lines[2] = {lines_[0], lines_[1]};
    if constexpr (C::kSparse == Major::free) {
      lines[0] = line_of_lane((step.k + warp() * 16) & block_k_mask());
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // The patch's first row and k.
      const int row = C::kSparse == Major::k ? i % 2 * 64 + warp() * 16 : i * 16;
      const int k = C::kSparse == Major::k ? i / 2 * 16 : warp() * 16;
      const int box = ((row >> log2_rows_) << (kLog2TileK - log2_k_)) + (k >> log2_k_);
      const std::int32_t value = __shfl_sync(0xffffffffu, step.value, box);
      const bool wanted = (mask >> (k / 16 * kConsumerGroups + row / kGroupRows) & 1) != 0;
      const int in_line =
          C::kSparse == Major::k ? (step.k + k) & block_k_mask() : row & block_row_mask();
      const std::uint64_t block =
          std::uint64_t{p_.sparse_block_stride} * static_cast<std::uint32_t>(max(value, 0));
      copy_async_if(wanted, to + i * 128 * 16,
                    lines[C::kSparse == Major::k ? i % 2 : 0] + in_line / 8 + block,
                    value >= 0 ? 16 : 0);
    }
    arrive_after_copies(&smem_.full[stage]);
  }

  /// What a lane copies of a line of block 0 and the 15 behind it.
  __device__ const uint4* line_of_lane(int line) const {
    return static_cast<const uint4*>(p_.sparse_values) +
           (line + lane() / 2) * p_.sparse_line_stride + lane() % 2;
  }

  const Params& p_;
  SharedStorage<C>& smem_;
  int thread_;
  const uint4* lines_[2]{};  // where blocks are copied by threads: of a warp's rows, and 64 further
  int log2_rows_, log2_k_;   // of a sparse box
  int log2_rows_in_group_;
  Box sparse_, dense_;      // of this lane
  std::uint32_t bits_ = 0;  // of the sparse one, 0 where there is none
};

}  // namespace sparsek::bsr::sm90
