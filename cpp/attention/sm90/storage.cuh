#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/config.h"
#include "attention/sm90/schedule.h"
#include "primitives/mbarrier.cuh"

namespace sparsek::attn::sm90 {

// Racecheck follows an arrival only for what the lane that arrives has written or read itself. So
// those lanes of the producer arrive that write a note, and of a consumer warp lane 0 alone reads
// it, which gives the stage back; of Work, which all read, all do.

/// 16 keys of a tile.
struct alignas(16) Granule {
  std::int32_t key;    // the first, or kAbsent
  std::int32_t shift;  // of its bits in their word
  // In BlockMaskView::bitmaps, of the q tile's first row, or of query 0 where heads are packed; -1:
  // full.
  std::int64_t word;
};

/// What the producer tells the consumers about one tile of keys.
template <int kGranules>
struct TileNote {
  std::uint32_t flags;
  Granule granules[kGranules];  // read where kMasked is set only
};
constexpr std::uint32_t kLast = 0x80;  // of its q tile, for all
// Without lists for each warpgroup, its number of bits higher: nothing of its q tile is to be seen
// after this tile; some (query, key) pair is not allowed; none is, nor was of the tiles before.
constexpr std::uint32_t kEnded = 0x1, kMasked = 0x100, kHidden = 0x1000;
constexpr std::int32_t kAbsent = 0x7fffff00;

/// One q tile to compute.
struct Work {
  enum State : std::int32_t { kTiles, kEmpty, kEnd };
  State state;
  std::int32_t q_begin;
  std::int32_t head;
  std::int32_t batch;
  std::int32_t part;  // of all parts (shares.h), if the tile is shared; else -1
};

/// A list's blocks on their way from memory to TMA.
struct BlockQueue {
  static constexpr int kCapacity = 48;  // a tile's pieces, and 32 entries more
  std::int32_t key[kCapacity];          // the block's first
  std::int32_t bitmap[kCapacity];
};

/// The q tile to come and the first entries of its list, read while the one before is being loaded.
struct ListHead {
  std::int64_t end;   // behind the last entry to visit
  std::int32_t step;  // 1, or -1: from the last entry to the first
  std::int32_t num_entries;
  std::int32_t key[32];
  std::int32_t bitmap[32];

  /// Of the entry from which on so many are left.
  __device__ __forceinline__ std::int64_t place(std::int32_t left) const {
    return end - static_cast<std::int64_t>(step) * left;
  }
};

/// What a scout warp found.
struct NextTile {
  QTile tile;
  bool found;
};

template <class Element, class C>
struct Layouts {
  using AtomK = std::conditional_t<C::kSlabK == 64, cute::GMMA::Layout_K_SW128_Atom<Element>,
                                   cute::GMMA::Layout_K_SW64_Atom<Element>>;
  using AtomV = std::conditional_t<C::kSlabV == 64, cute::GMMA::Layout_MN_SW128_Atom<Element>,
                                   cute::GMMA::Layout_MN_SW64_Atom<Element>>;
  // Slab after slab of kSlab columns, as the TMA boxes bring them.
  using Q = decltype(cute::tile_to_shape(
      AtomK{}, cute::Shape<cute::Int<C::kTileQ>, cute::Int<C::kHeadDim>>{}));
  using K = decltype(cute::tile_to_shape(
      AtomK{}, cute::Shape<cute::Int<C::kTileKv>, cute::Int<C::kHeadDim>>{}));
  using V = decltype(cute::tile_to_shape(  // (value dim, key)
      AtomV{}, cute::Shape<cute::Int<C::kValueDim>, cute::Int<C::kTileKv>>{},
      cute::Step<cute::_2, cute::_1>{}));
};

/// O on its way to memory, in slabs as V's.
template <class Element, int kElements>
struct OutBuffer {
  alignas(1024) Element out[kElements];
};
template <class Element>
struct OutBuffer<Element, 0> {};

/// The first key of each piece of the tiles in K's ring and of as many before them, for who wants
/// it when K has been given back.
template <int kTiles, int kPieces>
struct PieceKeys {
  std::int32_t piece_keys[kTiles][kPieces];
};
template <int kPieces>
struct PieceKeys<0, kPieces> {};

/// Of one team.
template <class Element, class C>
struct Storage : OutBuffer<Element, C::kBuffersOut ? C::kTileQ * C::kValueDim : 0>,
                 PieceKeys<C::kAsksWeights ? 2 * C::kStagesK : 0, C::kGranules> {
  static constexpr int kTileElementsK = C::kTileKv * C::kHeadDim;
  static constexpr int kTileElementsV = C::kTileKv * C::kValueDim;

  alignas(1024) Element q[C::kTileQ * C::kHeadDim];
  alignas(1024) Element k[C::kStagesK][kTileElementsK];
  alignas(1024) Element v[C::kStages][kTileElementsV];

  Ring<C::kStagesK> ring_k;
  Ring<C::kStages> ring_v;
  Ring<1> ring_q[C::kPartsQ];
  Ring<2> ring_work;
  TileNote<C::kNotedGranules> notes[C::kStagesK];  // beside k
  Work work[2];
  BlockQueue queue;
  ListHead next_list;
  NextTile next;
  Ring<1> ring_next;

  /// Of the tile at a step of K's ring; for kAsksWeights.
  __device__ __forceinline__ std::int32_t* piece_keys_of(const RingState<C::kStagesK>& state) {
    if constexpr (C::kAsksWeights) return this->piece_keys[state.stage_of_two()];
    return nullptr;
  }

  __device__ __forceinline__ void init(int consumer_warps) {
    ring_k.init(C::kNotedGranules, consumer_warps);
    ring_v.init(1, consumer_warps);
    for (auto& ring : ring_q) ring.init(1, consumer_warps / C::kPartsQ);
    ring_work.init(1, consumer_warps * 32);
    ring_next.init(32, 32);
  }
};

}  // namespace sparsek::attn::sm90
