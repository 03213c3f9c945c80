#pragma once

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/sm90/params.h"
#include "attention/sm90/storage.cuh"
#include "attention/sm90/tile_scheduler.cuh"

namespace sparsek::attn::sm90 {

/// A piece of consecutive keys that one TMA box brings.
struct Piece {
  std::int32_t key = kAbsent;
  std::int32_t block_begin = 0;  // first key of its block
  std::int32_t bitmap = -1;
};

/// The keys of a q tile without a block list: one range, a piece for a tile.
class RangeStream {
 public:
  __device__ __forceinline__ RangeStream(const KeyRange& range, std::int32_t tile_kv)
      : key_(range.begin), end_(range.end), tile_kv_(tile_kv) {}

  __device__ __forceinline__ bool empty() const { return key_ >= end_; }
  __device__ __forceinline__ bool last() const { return key_ + tile_kv_ >= end_; }
  __device__ __forceinline__ bool near_end() const { return key_ + 2 * tile_kv_ >= end_; }
  __device__ __forceinline__ Piece piece() const { return {key_, 0, -1}; }
  __device__ __forceinline__ void advance() { key_ += tile_kv_; }

 private:
  std::int32_t key_;
  std::int32_t end_;
  std::int32_t tile_kv_;
};

/// One entry of a list: the block's first key, kAbsent where there is none to see.
struct Entry {
  std::int32_t key = kAbsent;
  std::int32_t bitmap = -1;
};

__device__ __forceinline__ Entry read_entry(const Params& params, std::int64_t place, bool inside) {
  const BlockMaskView& mask = params.mask;
  const ListedBlock block =
      inside ? listed_block(mask, place, params.lists.num_kv_blocks) : ListedBlock{};
  if (block.kv_block < 0) return {};
  return {static_cast<std::int32_t>(block.kv_block) * static_cast<std::int32_t>(mask.kv_block),
          static_cast<std::int32_t>(block.bitmap)};
}

/// A lane's place among a tile's pieces, and among those of the list's blocks.
struct LanePiece {
  std::int32_t of_tile;
  std::int32_t entry;  // the block's, and
  std::int32_t of_block;
};

/// The keys of a q tile's block list. Used by a whole warp, each lane asking for its own piece.
class ListStream {
 public:
  /// `head` was read ahead; `lane_piece` is this lane's.
  __device__ __forceinline__ ListStream(const Params& params, BlockQueue& queue,
                                        const ListHead& head, const KeyRange& visible,
                                        const LanePiece& lane_piece)
      : params_(params),
        queue_(queue),
        head_(head),
        visible_(visible),
        lane_piece_(lane_piece.of_tile),
        held_{head.key[threadIdx.x % 32], head.bitmap[threadIdx.x % 32]},
        left_(head.num_entries),
        entry_(static_cast<std::uint32_t>(lane_piece.entry)),
        piece_(lane_piece.of_block) {
    fill();
  }

  __device__ __forceinline__ bool empty() const { return available_ <= 0; }
  __device__ __forceinline__ bool last() const {
    return exhausted() && available_ <= params_.pieces.per_tile;
  }
  /// Few tiles are left: about as many as it takes to read the next list.
  __device__ __forceinline__ bool near_end() const {
    return exhausted() && available_ <= 4 * params_.pieces.per_tile;
  }

  /// This lane's piece of the tile at hand; absent past the end.
  __device__ __forceinline__ Piece piece() const {
    if (lane_piece_ >= available_) return {};
    const std::uint32_t slot = entry_ % BlockQueue::kCapacity;
    const std::int32_t begin = queue_.key[slot];
    return {begin + piece_ * params_.pieces.keys, begin, queue_.bitmap[slot]};
  }

  __device__ __forceinline__ void advance() {
    const PieceGrid& pieces = params_.pieces;
    available_ -= pieces.per_tile;
    entry_ += pieces.entry_step;
    piece_ += pieces.piece_step;
    if (piece_ >= pieces.per_block) {
      piece_ -= pieces.per_block;
      ++entry_;
    }
    fill();
  }

 private:
  __device__ __forceinline__ bool exhausted() const { return left_ <= 0; }

  /// Until more than a tile is at hand, or the list is at its end.
  __device__ __forceinline__ void fill() {
    const PieceGrid& pieces = params_.pieces;
    while (!exhausted() && available_ <= pieces.per_tile) {
      __syncwarp();  // every lane has read its piece before the queue moves on
      const bool wanted =
          held_.key != kAbsent &&
          meets(visible_, held_.key, held_.key + static_cast<std::int32_t>(params_.mask.kv_block));
      const std::uint32_t votes = __ballot_sync(~0u, wanted);
      if (wanted) {
        const std::uint32_t before = __popc(votes & ((1u << threadIdx.x % 32) - 1));
        const std::uint32_t slot = (tail_ + before) % BlockQueue::kCapacity;
        queue_.key[slot] = held_.key;
        queue_.bitmap[slot] = held_.bitmap;
      }
      const auto found = static_cast<std::int32_t>(__popc(votes));
      tail_ += found;
      available_ += found * pieces.per_block;
      left_ -= 32;
      const std::int32_t lane_left = left_ - static_cast<std::int32_t>(threadIdx.x) % 32;
      held_ = read_entry(params_, head_.place(lane_left), lane_left > 0);
      __syncwarp();
    }
  }

  const Params& params_;
  BlockQueue& queue_;
  const ListHead& head_;  // where the list is; another's once this one is exhausted
  KeyRange visible_;
  std::int32_t lane_piece_;
  Entry held_;                  // this lane's of the next 32
  std::int32_t left_;           // entries of the list, those that the lanes hold included
  std::int32_t available_ = 0;  // pieces in the queue from this tile on
  std::uint32_t tail_ = 0;      // entries that entered the queue
  std::uint32_t entry_;         // of the queue, and
  std::int32_t piece_;          // of its block: this lane's
};

}  // namespace sparsek::attn::sm90
