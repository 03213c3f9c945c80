#pragma once

#include "bsr_gemm/sm90/k_tiles.cuh"

namespace sparsek::bsr::sm90 {

/// The warps that fill the stages where blocks are so small that threads copy them faster than TMA.
/// All four fill each stage, since one takes too long for all of it: a warp copies patches of
/// 16 x 16, a lane 16 bytes of each, and writes zeros where a row has no block. Without branches,
/// and with as few instructions as it takes: a warp on its own waits for each.
template <class C>
class CopyingProducer : KTiles<C> {
  using Base = KTiles<C>;
  using List = typename Base::List;
  using Found = typename Base::Found;
  using Base::kLog2TileK, Base::kWarps, Base::bits_, Base::block_k_mask, Base::block_row_mask,
      Base::dense_bytes, Base::find, Base::kept, Base::lane, Base::list_of, Base::load_dense,
      Base::log2_k_, Base::log2_rows_, Base::mask_of, Base::p_, Base::smem_, Base::sparse_,
      Base::thread_, Base::warp;

 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ CopyingProducer(const Params& p, SharedStorage<C>& smem) : Base(p, smem) {
    static_assert(C::kInner == 16 && L::kSparseElements == 32 * 256);
    const int row = sparse_.row & block_row_mask();
    box_place_ = kRowLines ? row * p.sparse_line_stride : row / 8;
    const int lines_of_box = 1 << (kRowLines ? log2_rows_ : log2_k_);
    const int line = (warp() * 16 & (lines_of_box - 1)) + lane() / 2;
    from_ = kept(static_cast<const char*>(p.sparse_values) +
                 (std::uint64_t{p.sparse_line_stride} * line + lane() % 2) * kUnitBytes);
    to_ = shared_address(smem.sparse[0]) + swizzled<C::kInner>(thread_ * kUnitBytes);
#pragma unroll
    for (int i = 0; i < kPatches; ++i) {
      const int patch_row = kRowLines ? i % 2 * 64 + warp() * 16 : i * 16;
      const int patch_k = kRowLines ? i / 2 * 16 : warp() * 16;
      boxes_[i] = (patch_row >> log2_rows_ << (kLog2TileK - log2_k_)) + (patch_k >> log2_k_);
    }
  }

  template <class Walk>
  __device__ void run() {
    int stage = 0;
    std::uint32_t phase = 0;
    Walk tiles(p_);
    while (tiles.valid()) {
      const Tile tile = tiles.take();
      const List list = list_of(tile);
      // Two ahead: they arrive while the stages before are waited for.
      Found found = find(list, 0), next = find(list, kTileK);
#pragma unroll 1
      for (int k0 = 0; k0 < tile.steps * kTileK; k0 += kTileK) {
        const Found now = found;
        found = next;
        next = find(list, k0 + 2 * kTileK);
        fill(list, k0, now, stage, phase ^ 1);
        if (++stage == C::kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
    }
  }

 private:
  static constexpr bool kRowLines = C::kSparse == Major::k;  // a line is a row's k, not a k's rows
  static constexpr int kUnitBytes = 16, kPatches = 8;
  // In place of where a patch lies, which is less (why_not_copied).
  static constexpr std::uint32_t kNotWanted = 0xffffffffu, kAbsent = 0xfffffffeu;

  /// Where this lane's box lies among all values, in units of 16 bytes.
  __device__ std::uint32_t place_of(const Found& found, int k0, std::uint32_t mask) const {
    if (found.value < 0) return (bits_ & mask) != 0 ? kAbsent : kNotWanted;
    const auto k = static_cast<std::uint32_t>((k0 + sparse_.k) & block_k_mask());
    return p_.sparse_block_stride * static_cast<std::uint32_t>(found.value) + box_place_ +
           (kRowLines ? k / 8 : k * p_.sparse_line_stride);
  }

  __device__ void fill(const List& list, int k0, const Found& found, int stage,
                       std::uint32_t phase) {
    const std::uint32_t mask = mask_of(found), place = place_of(found, k0, mask);
    std::uint32_t places[kPatches];
#pragma unroll
    for (int i = 0; i < kPatches; ++i) places[i] = __shfl_sync(0xffffffffu, place, boxes_[i]);
    wait(&smem_.empty[stage], phase);
    if (thread_ == 0) {
      smem_.masks[stage] = mask;
      expect(&smem_.full[stage], dense_bytes(list));
      arrive(&smem_.full[stage]);
    }
    if (lane() % kWarps == warp()) load_dense(list, k0, found, stage);
    const std::uint32_t to = to_ + stage * (L::kSparseElements * sizeof(Element));
#pragma unroll
    for (int i = 0; i < kPatches; ++i) {
      copy_async_if(places[i] != kNotWanted, to + i * 128 * kUnitBytes,
                    from_ + std::uint64_t{places[i]} * kUnitBytes,
                    places[i] < kAbsent ? kUnitBytes : 0);
    }
    arrive_after_copies(&smem_.full[stage]);
  }

  const char* from_;         // what this lane copies of the block at place 0
  std::uint32_t to_;         // where to, in the first stage
  std::uint32_t box_place_;  // in a block, where its k begins
  int boxes_[kPatches];      // in which boxes this warp's patches lie
};

}  // namespace sparsek::bsr::sm90
