#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/tiles.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::bsr::sm90 {

/// What the producer warps of a product with one sparse operand know of its K tiles. One is
/// assembled from boxes: pieces of the blocks that the rows of the group have at these k blocks,
/// and the dense operand's rows that belong to them. Lane i of every warp knows box i of either.
template <class C>
class KTiles {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

 protected:
  using Hint = cute::TMA::CacheHintSm90;
  // A product with few columns reads blocks once.
  static constexpr auto kBlocksHint =
      static_cast<std::uint64_t>(C::kParts ? Hint::EVICT_FIRST : Hint::EVICT_NORMAL);
  static constexpr auto kDenseHint =
      static_cast<std::uint64_t>(C::kParts ? Hint::EVICT_LAST : Hint::EVICT_NORMAL);
  static constexpr int kWarps = 4;
  // Where a warp has most to do the compiler is told that its number, and all that follows from it,
  // is the same in all lanes. Elsewhere it was measured to be slower.
  static constexpr bool kUniformWarp = C::kZerosByThreads;
  static constexpr int kLog2Inner = C::kInner == 16 ? 4 : C::kInner == 32 ? 5 : 6;
  static constexpr int kLog2TileK = 6;
  static constexpr int kLog2GroupRows = 6;
  static_assert(kTileRows / C::kInner * (kTileK / C::kInner) <= 32);
  static_assert(kTileK / C::kInner * (C::kTileCols / 64) <= 32);

  struct Box {
    int row;
    int k;
  };
  /// The merged list of a tile, from what this lane reads of it on.
  struct List {
    const std::int32_t* values;
    const std::int32_t* cols;
    std::int32_t length;
    std::int32_t tile_col;
    bool is_short;  // Params::last_cols
  };
  /// Of one K tile, the block of this lane's sparse box, or -1, and the k block of its dense one.
  struct Found {
    std::int32_t value;
    std::int32_t col;
  };

  __device__ KTiles(const Params& p, SharedStorage<C>& smem)
      : p_(p),
        smem_(smem),
        thread_(threadIdx.x % 128),
        uniform_warp_(kUniformWarp ? uniform(threadIdx.x % 128 / 32) : 0) {
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
  }

  __device__ int lane() const { return thread_ % 32; }
  __device__ int warp() const {
    return kUniformWarp ? static_cast<int>(uniform_warp_) : thread_ / 32;
  }
  __device__ int block_row_mask() const { return (1 << p_.log2_block_rows) - 1; }
  __device__ int block_k_mask() const { return (1 << p_.log2_block_k) - 1; }

  __device__ List list_of(const Tile& tile) const {
    if constexpr (C::kOneTile) prefetch_lists(tile);
    return {kept(p_.lists.values + (tile.begin << log2_rows_in_group_) +
                 (sparse_.row >> p_.log2_block_rows)),
            kept(p_.lists.cols + tile.begin), static_cast<std::int32_t>(tile.end - tile.begin),
            tile.col, tile.is_short};
  }

  /// Of the K tile that begins at k of the list.
  __device__ Found find(const List& list, int k) const {
    Found found{-1, p_.absent_col};
    std::uint32_t entry = static_cast<std::uint32_t>(k + sparse_.k) >> p_.log2_block_k;
    const auto length = static_cast<std::uint32_t>(list.length);
    if (bits_ != 0 && entry < length) {
      found.value = __ldg(list.values + (entry << log2_rows_in_group_));
    }
    entry = static_cast<std::uint32_t>(k + dense_.k) >> p_.log2_block_k;
    if (entry < length) found.col = __ldg(list.cols + entry);
    return found;
  }

  /// Bit k / 16 * 2 + row / 64: whether some block lies there.
  __device__ std::uint32_t mask_of(const Found& found) const {
    return __reduce_or_sync(0xffffffffu, found.value >= 0 ? bits_ : 0u);
  }

  __device__ std::uint32_t dense_bytes(const List& list) const {
    return sizeof(Element) * kTileK * (list.is_short ? p_.last_cols : C::kTileCols);
  }

  __device__ void load_dense(const List& list, int k0, const Found& found, int stage) {
    const Box box = dense_;
    if (box.row >= C::kTileCols) return;
    Element* const to = &smem_.dense[stage][L::dense_box(box.row, box.k)];
    const int k = (found.col << p_.log2_block_k) + ((k0 + box.k) & block_k_mask());
    const int col = list.tile_col + box.row;
    const CUtensorMap* const map = list.is_short ? &p_.last_dense_map : &p_.dense_map;
    if constexpr (C::kDense == Major::k) {
      cute::SM90_TMA_LOAD_2D::copy(map, &smem_.full[stage], kDenseHint, to, k, col);
    } else if (p_.dense_in_chunks) {
      cute::SM90_TMA_LOAD_3D::copy(map, &smem_.full[stage], kDenseHint, to, 0, k, col / 64);
    } else if (col < p_.cols) {
      cute::SM90_TMA_LOAD_3D::copy(map, &smem_.full[stage], kDenseHint, to, col, k, 0);
    }
  }

  /// A pointer in registers: else the compiler adds up anew what it is made of, wherever it is
  /// used.
  template <class T>
  static __device__ T* kept(T* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
  }

  const Params& p_;
  SharedStorage<C>& smem_;
  int thread_;
  int log2_rows_, log2_k_;  // of a sparse box
  Box sparse_, dense_;      // of this lane
  std::uint32_t bits_ = 0;  // of the sparse one, 0 where there is none

 private:
  /// A CTA that walks along a list once meets each line of it for the first time.
  __device__ void prefetch_lists(const Tile& tile) const {
    const auto prefetch = [&](const std::int32_t* list, int log2_size) {
      const char* const begin = reinterpret_cast<const char*>(list + (tile.begin << log2_size));
      const std::int64_t bytes = (tile.end - tile.begin) << (log2_size + 2);
      for (std::int64_t at = thread_ * 128; at < bytes; at += 128 * 128) {
        ptx::prefetch_to_l2(begin + at);
      }
    };
    prefetch(p_.lists.cols, 0);
    prefetch(p_.lists.values, log2_rows_in_group_);
  }

  std::uint32_t uniform_warp_;
  int log2_rows_in_group_;
};

}  // namespace sparsek::bsr::sm90
