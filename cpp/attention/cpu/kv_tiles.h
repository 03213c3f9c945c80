#pragma once

#include <array>
#include <cstdint>

#include "attention/band.h"
#include "attention/block_lists.h"

namespace sparsek::attn::cpu {

constexpr std::int64_t kTileQ = 128;   // most queries that are handled together
constexpr std::int64_t kTileKv = 128;  // most keys that are handled together

/// Queries [begin, end), at least one, all of one q block of the mask.
struct QTile {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t q_block = 0;  // meaningless without a mask

  std::int64_t size() const { return end - begin; }
};

/// How the queries of a head are cut into tiles; no tile straddles two q blocks.
class QTiling {
 public:
  /// `mask` may be null.
  QTiling(const BlockMaskView* mask, std::int64_t q_len, std::int64_t largest_tile);

  std::int64_t size() const { return num_blocks_ * tiles_per_block_; }
  /// False for a tile that has no queries.
  bool tile(std::int64_t number, QTile* tile) const;

 private:
  std::int64_t q_len_;
  std::int64_t block_;
  std::int64_t num_blocks_;
  std::int64_t tiles_per_block_;
  std::int64_t tile_size_;
};

/// Neighbouring keys of a kv tile, and what survives among them.
struct KvRun {
  std::int64_t key = 0;  // the first
  std::int64_t count = 0;
  std::int64_t row = 0;         // of the first key in the tile
  std::int64_t bitmap = -1;     // -1: no bitmap
  std::int64_t bitmap_col = 0;  // of the first key
  bool cut_by_band = false;     // some query of the tile may not see some of these keys
};

/// Up to kTileKv keys, gathered from as many runs as it takes: small blocks share a tile.
struct KvTile {
  std::array<KvRun, kTileKv> runs;
  std::int64_t num_runs = 0;
  std::int64_t num_keys = 0;

  /// Every query of the q tile sees every key of this one.
  bool whole() const;
};

/// Where a q tile goes: the kv tiles that hold a key that the lists and the band together let it
/// see.
class KvTiles {
 public:
  /// `mask` may be null.
  KvTiles(const BlockMaskView* mask, const Band& band, std::int64_t batch, std::int64_t head,
          std::int64_t num_q_heads, const QTile& q_tile);

  /// False when there is none left.
  bool next(KvTile* tile);

 private:
  bool next_block();
  void append_run(KvTile* tile);

  const BlockMaskView* mask_;
  ListRange entries_;        // yet to be read
  std::int64_t band_begin_;  // keys that at least one query sees
  std::int64_t band_end_;
  std::int64_t whole_begin_;  // keys that every query sees
  std::int64_t whole_end_;
  // What is left of the current block.
  std::int64_t key_ = 0;
  std::int64_t key_end_ = 0;
  std::int64_t block_begin_ = 0;
  std::int64_t bitmap_ = -1;
};

}  // namespace sparsek::attn::cpu
