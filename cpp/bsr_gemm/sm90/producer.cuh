#pragma once

#include <cutlass/arch/barrier.h>

#include "bsr_gemm/sm90/k_tiles.cuh"

namespace sparsek::bsr::sm90 {

/// The warps that fill the stages by TMA, each every fourth K tile's, so that what one waits for
/// holds no other up.
template <class C>
class Producer : KTiles<C> {
  using Base = KTiles<C>;
  using Box = typename Base::Box;
  using List = typename Base::List;
  using Found = typename Base::Found;
  using Base::kBlocksHint, Base::kWarps, Base::bits_, Base::block_k_mask, Base::block_row_mask,
      Base::dense_bytes, Base::find, Base::lane, Base::list_of, Base::load_dense, Base::log2_k_,
      Base::log2_rows_, Base::mask_of, Base::p_, Base::smem_, Base::sparse_, Base::warp;

 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ Producer(const Params& p, SharedStorage<C>& smem) : Base(p, smem) {}

  template <class Walk>
  __device__ void run() {
    int stage = warp();
    std::uint32_t phase = 0;
    Walk tiles(p_);
    int t = warp();  // K tile of the tile
    List list{};
    std::int32_t steps = 0;
    while (true) {
      while (t >= steps) {
        t -= steps;
        if (!tiles.valid()) return;
        const Tile tile = tiles.take();
        steps = tile.steps;
        list = list_of(tile);
      }
      fill(list, t * kTileK, stage, phase ^ 1);
      t += kWarps;
      if constexpr (C::kStages > kWarps) stage += kWarps;
      if (C::kStages == kWarps || stage >= C::kStages) {
        if constexpr (C::kStages > kWarps) stage -= C::kStages;
        phase ^= 1;
      }
    }
  }

 private:
  __device__ void fill(const List& list, int k0, int stage, std::uint32_t phase) {
    const Found found = find(list, k0);
    const std::uint32_t mask = mask_of(found);
    const bool wanted = (bits_ & mask) != 0, present = wanted && found.value >= 0;
    const bool by_tma = C::kZerosByThreads ? present : wanted;
    wait(&smem_.empty[stage], phase);
    const int boxes = __popc(__ballot_sync(0xffffffffu, by_tma));
    if (lane() == 0) {
      smem_.masks[stage] = mask;
      expect(&smem_.full[stage],
             dense_bytes(list) + sizeof(Element) * (boxes << (log2_k_ + log2_rows_)));
      if constexpr (!C::kZerosByThreads) arrive(&smem_.full[stage]);
    }
    load_dense(list, k0, found, stage);
    if (by_tma) load_sparse(found, k0, stage);
    if constexpr (C::kZerosByThreads) {
      write_zeros(wanted && !present, stage);
      if (lane() == 0) arrive(&smem_.full[stage]);
    }
  }

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

  __device__ void load_sparse(const Found& found, int k0, int stage) {
    const Box box = sparse_;
    int row = box.row & block_row_mask();
    const int k = (k0 + box.k) & block_k_mask();
    if (C::kMayFold && p_.folded) row /= 2;  // a line
    cute::SM90_TMA_LOAD_3D::copy(&p_.sparse_map, &smem_.full[stage], kBlocksHint,
                                 &smem_.sparse[stage][L::sparse_box(box.row, box.k)],
                                 C::kSparse == Major::k ? k : row, C::kSparse == Major::k ? row : k,
                                 found.value);
  }
};

}  // namespace sparsek::bsr::sm90
