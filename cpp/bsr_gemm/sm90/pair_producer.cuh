#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/tiles.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

/// Blocks are read by many tiles.
constexpr std::uint64_t kKeep = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);

/// The boxes that one operand's half of a stage is assembled from: lane i knows box i. Of blocks of
/// 64 and 128 one has all of a block's rows, since the warp takes as long for a small one.
struct Boxes {
  int log2_rows, log2_k;
  int row, k;           // of this lane's, in the tile
  int log2_block_rows;  // of the operand
  int log2_rows_in_group;
  std::uint32_t bits = 0;  // of KTiles::mask_of, 0 where the lane has no box

  template <class C, Major kMajor>
  __device__ static Boxes of(int lane, int log2_block_rows, int log2_block_k) {
    constexpr int kLog2Inner = C::kInner == 16 ? 4 : C::kInner == 32 ? 5 : 6;
    Boxes b;
    b.log2_rows = C::kInner == 64      ? log2_block_rows
                  : kMajor == Major::k ? min(log2_block_rows, 6)
                                       : kLog2Inner;
    b.log2_k = kMajor == Major::k ? kLog2Inner : min(log2_block_k, 6);
    const int parts = kTileK >> b.log2_k;
    b.row = (lane / parts) << b.log2_rows;
    b.k = (lane % parts) << b.log2_k;
    b.log2_block_rows = log2_block_rows;
    b.log2_rows_in_group = max(0, 7 - log2_block_rows);
    if (b.row < kTileRows) {
      const std::uint32_t groups = b.log2_rows == 7 ? 3 : 1u << (b.row / kGroupRows);
      for (int k = b.k / 16; k < (b.k + (1 << b.log2_k)) / 16; ++k) {
        b.bits |= groups << (k * kConsumerGroups);
      }
    }
    return b;
  }

  __device__ int bytes() const { return 2 << (log2_rows + log2_k); }

  __device__ std::int32_t value_at(const Lists& lists, std::int64_t entry) const {
    return lists.values[(entry << log2_rows_in_group) + (row >> log2_block_rows)];
  }

  template <int kInner, Major kMajor, class Element>
  __device__ void load(const CUtensorMap& map, std::uint64_t* barrier, Element* to, int k_in_list,
                       int log2_block_k, std::int32_t value) const {
    const int row_in_block = row & ((1 << log2_block_rows) - 1);
    const int k_in_block = k_in_list & ((1 << log2_block_k) - 1);
    if constexpr (kInner == 64 && kMajor == Major::free) {
      cute::SM90_TMA_LOAD_4D::copy(&map, barrier, kKeep, to, 0, k_in_block, 0, value);
    } else {
      cute::SM90_TMA_LOAD_3D::copy(&map, barrier, kKeep, to,
                                   kMajor == Major::k ? k_in_block : row_in_block,
                                   kMajor == Major::k ? row_in_block : k_in_block, value);
    }
  }
};

/// The warp that fills the stages of a tile of two sparse operands: first the k blocks that its
/// group of rows and its group of columns both have are found, by their bits, then both operands'
/// blocks are loaded. kMany: of the CTA's tiles, one after the other.
template <class C, bool kMany>
class PairProducer {
 public:
  using Element = typename C::Element;
  using L = Layouts<C>;

  __device__ PairProducer(const Params& p, SharedStorage<C>& smem)
      : p_(p),
        smem_(smem),
        lane_(threadIdx.x % 32),
        a_(Boxes::of<C, C::kSparse>(lane_, p.log2_block_rows, p.log2_block_k)),
        b_(Boxes::of<C, C::kDense>(lane_, p.log2_block_cols, p.log2_block_k)) {
    // Wanted wherever some row has a block in its slice of k.
    b_slices_ = 0;
    for (int slice = 0; slice < kTileK / 16; ++slice) {
      if (b_.bits >> (slice * kConsumerGroups) & 3u) b_slices_ |= 3u << (slice * kConsumerGroups);
    }
  }

  __device__ void run() {
    tile_ = static_cast<std::int32_t>(blockIdx.x);
    if constexpr (!kMany) return load_tile(read(pair_ranks(p_, tile_)));
    while (tile_ < p_.num_tiles) {
      load_tile(read(pair_ranks(p_, tile_)));
      if (!asked_) ask();
      tile_ = __shfl_sync(0xffffffffu, next_, 0);
      asked_ = false;
    }
    mark(kEndOfTiles);
  }

 private:
  struct Values {
    std::int32_t a, b;
  };
  /// A tile's two groups, where the bits of their lists lie, and a lane's first word of them.
  struct Heads {
    RowGroup a_group, b_group;
    const std::uint32_t *a_bits, *b_bits;
    std::uint32_t a, b;
  };

  __device__ Heads read(const PairRanks& ranks) const {
    Heads heads;
    heads.a_group = p_.lists.groups[ranks.row];
    heads.b_group = p_.col_lists.groups[ranks.col];
    heads.a_bits = p_.lists.bits + ranks.row * std::int64_t{p_.lists.bit_words};
    heads.b_bits = p_.col_lists.bits + ranks.col * std::int64_t{p_.col_lists.bit_words};
    heads.a = word_of(heads.a_bits, lane_);
    heads.b = word_of(heads.b_bits, lane_);
    return heads;
  }

  /// For the CTA's next tile; the answer is not waited for here.
  __device__ void ask() {
    asked_ = true;
    if (lane_ != 0) return;
    next_ = p_.num_tiles;
    if (p_.next_tile == nullptr) return;
    ptx::griddepcontrol_wait();  // the kernel ahead, which sets it, may not have ended before
    next_ = atomicAdd(p_.next_tile, 1);
  }

  __device__ std::uint32_t word_of(const std::uint32_t* bits, std::int32_t word) const {
    return word < p_.lists.bit_words ? bits[word] : 0;
  }

  __device__ void load_tile(const Heads& heads) {
    a_begin_ = heads.a_group.begin;
    a_end_ = a_begin_ + heads.a_group.length;
    b_begin_ = heads.b_group.begin;
    b_end_ = b_begin_ + heads.b_group.length;
    groups_ = make_int2(heads.a_group.index, heads.b_group.index);
    a_listed_ = b_listed_ = 0;
    std::uint32_t a = heads.a, b = heads.b;
    std::int32_t word = 0;
    for (bool more = true; more;) {
      __syncwarp();  // the last list has been read
      list_pairs(a, b);
      __syncwarp();
      word += kListedBlocks / 32;
      more = word < p_.lists.bit_words;
      if (kMany && !more && smem_.num_pairs > 0) return load_listed(kLastOfTile);
      load_listed(0);
      a = word_of(heads.a_bits, word + lane_);
      b = word_of(heads.b_bits, word + lane_);
    }
    mark(kEndOfTile);
  }

  /// A stage without blocks.
  __device__ void mark(std::uint32_t what) {
    wait(&smem_.empty[stage_], phase_ ^ 1);
    if (lane_ == 0) {
      smem_.masks[stage_] = what;
      if constexpr (kMany) smem_.groups[stage_] = groups_;
      arrive(&smem_.full[stage_]);
    }
    advance();
  }

  __device__ void advance() {
    if (++stage_ == C::kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  /// A word of 32 k blocks for each lane.
  __device__ void list_pairs(std::uint32_t a, std::uint32_t b) {
    const int a_own = __popc(a), b_own = __popc(b), own = __popc(a & b);
    int a_upto = a_own, b_upto = b_own, upto = own;  // with those of the lanes before
    for (int offset = 1; offset < 32; offset *= 2) {
      const int a_other = __shfl_up_sync(0xffffffffu, a_upto, offset);
      const int b_other = __shfl_up_sync(0xffffffffu, b_upto, offset);
      const int other = __shfl_up_sync(0xffffffffu, upto, offset);
      if (lane_ < offset) continue;
      a_upto += a_other;
      b_upto += b_other;
      upto += other;
    }
    const int a_first = a_listed_ + a_upto - a_own, b_first = b_listed_ + b_upto - b_own;
    int place = upto - own;
    for (std::uint32_t both = a & b; both != 0; both &= both - 1) {
      const std::uint32_t below = (both & (0u - both)) - 1;
      smem_.pairs[place++] = make_int2(a_first + __popc(a & below), b_first + __popc(b & below));
    }
    a_listed_ += __shfl_sync(0xffffffffu, a_upto, 31);
    b_listed_ += __shfl_sync(0xffffffffu, b_upto, 31);
    if (lane_ == 31) smem_.num_pairs = upto;
  }

  /// `flag`: of the last stage.
  __device__ void load_listed(std::uint32_t flag) {
    const int depth = smem_.num_pairs << p_.log2_block_k;
    Values next = fetch(0, depth);
    for (int k = 0; k < depth; k += kTileK) {
      const Values now = next;
      next = fetch(k + kTileK, depth);
      const std::uint32_t mask = __reduce_or_sync(0xffffffffu, now.a >= 0 ? a_.bits : 0u);
      // As late as its answer and the next lists come in time: a tile that is taken early is one
      // that no other CTA can begin.
      if (kMany && flag != 0 && !asked_ && k + 2 * kTileK >= depth) ask();
      wait(&smem_.empty[stage_], phase_ ^ 1);
      load(k, now, mask, k + kTileK < depth ? 0 : flag);
      advance();
    }
  }

  __device__ Values fetch(int k, int depth) const {
    Values values{-1, -1};
    if (a_.bits != 0 && k + a_.k < depth) {
      const std::int64_t entry = a_begin_ + smem_.pairs[(k + a_.k) >> p_.log2_block_k].x;
      if (entry < a_end_) values.a = a_.value_at(p_.lists, entry);
    }
    if (b_slices_ != 0 && k + b_.k < depth) {
      const std::int64_t entry = b_begin_ + smem_.pairs[(k + b_.k) >> p_.log2_block_k].y;
      if (entry < b_end_) values.b = b_.value_at(p_.col_lists, entry);
    }
    return values;
  }

  __device__ void load(int k, const Values& values, std::uint32_t mask, std::uint32_t flag) {
    const bool a_wanted = (a_.bits & mask) != 0, b_wanted = (b_slices_ & mask) != 0;
    const int bytes = __popc(__ballot_sync(0xffffffffu, a_wanted)) * a_.bytes() +
                      __popc(__ballot_sync(0xffffffffu, b_wanted)) * b_.bytes();
    std::uint64_t* const full = &smem_.full[stage_];
    if (lane_ == 0) {
      smem_.masks[stage_] = mask | flag;
      if constexpr (kMany) smem_.groups[stage_] = groups_;
      expect(full, bytes);
      arrive(full);
    }
    if (a_wanted) {
      a_.load<C::kInner, C::kSparse>(p_.sparse_map, full,
                                     &smem_.sparse[stage_][L::sparse_box(a_.row, a_.k)], k + a_.k,
                                     p_.log2_block_k, values.a);
    }
    if (b_wanted) {
      b_.load<C::kInner, C::kDense>(p_.dense_map, full,
                                    &smem_.dense[stage_][L::dense_box(b_.row, b_.k)], k + b_.k,
                                    p_.log2_block_k, values.b);
    }
  }

  const Params& p_;
  SharedStorage<C>& smem_;
  int lane_;
  Boxes a_, b_;
  std::uint32_t b_slices_ = 0;  // both rows' bits of the slices of k that this lane's box lies in
  std::int64_t a_begin_ = 0, a_end_ = 0, b_begin_ = 0, b_end_ = 0;
  int a_listed_ = 0, b_listed_ = 0;  // entries of the words before
  std::int32_t tile_ = 0, next_ = 0;
  bool asked_ = false;  // for the next one
  int2 groups_{};       // of the tile
  int stage_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace sparsek::bsr::sm90
