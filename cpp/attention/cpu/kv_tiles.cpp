#include "attention/cpu/kv_tiles.h"

#include <algorithm>

#include "core/integers.h"

namespace sparsek::attn::cpu {

QTiling::QTiling(const BlockMaskView* mask, std::int64_t q_len, std::int64_t largest_tile)
    : q_len_(q_len) {
  // Without a mask, blocks are tiles.
  block_ =
      std::max<std::int64_t>(1, mask == nullptr ? largest_tile : std::min(mask->q_block, q_len));
  num_blocks_ = ceil_div(q_len, block_);
  tiles_per_block_ = ceil_div(block_, largest_tile);
  tile_size_ = ceil_div(block_, tiles_per_block_);
}

bool QTiling::tile(std::int64_t number, QTile* tile) const {
  tile->q_block = number / tiles_per_block_;
  const std::int64_t block_begin = tile->q_block * block_;
  const std::int64_t block_end = std::min(block_begin + block_, q_len_);
  tile->begin = block_begin + number % tiles_per_block_ * tile_size_;
  tile->end = std::min(tile->begin + tile_size_, block_end);
  return tile->begin < tile->end;
}

bool KvTile::whole() const {
  return std::all_of(runs.begin(), runs.begin() + num_runs,
                     [](const KvRun& run) { return run.bitmap < 0 && !run.cut_by_band; });
}

KvTiles::KvTiles(const BlockMaskView* mask, const Band& band, std::int64_t batch, std::int64_t head,
                 std::int64_t num_q_heads, const QTile& q_tile)
    : mask_(mask),
      band_begin_(band.begin(q_tile.begin)),
      band_end_(band.end(q_tile.end - 1)),
      whole_begin_(band.begin(q_tile.end - 1)),
      whole_end_(band.end(q_tile.begin)) {
  if (mask_ != nullptr) {
    entries_ = list_range(*mask_, list_number(*mask_, batch, head, num_q_heads, q_tile.q_block));
  } else {
    key_ = band_begin_;
    key_end_ = band_end_;
  }
}

/// Moves on to the next listed block that the band reaches.
bool KvTiles::next_block() {
  while (entries_.begin < entries_.end) {
    const ListedBlock block = listed_block(*mask_, entries_.begin++);
    if (block.kv_block < 0) continue;
    block_begin_ = block.kv_block * mask_->kv_block;
    bitmap_ = block.bitmap;
    key_ = std::max(block_begin_, band_begin_);
    key_end_ =
        std::min(block_begin_ + std::min(mask_->kv_block, mask_->kv_len - block_begin_), band_end_);
    if (key_ < key_end_) return true;
  }
  return false;
}

void KvTiles::append_run(KvTile* tile) {
  KvRun run;
  run.key = key_;
  run.count = std::min(kTileKv - tile->num_keys, key_end_ - key_);
  run.row = tile->num_keys;
  run.bitmap = bitmap_;
  run.bitmap_col = bitmap_ < 0 ? 0 : key_ - block_begin_;
  run.cut_by_band = run.key < whole_begin_ || run.key + run.count > whole_end_;
  key_ += run.count;
  tile->num_keys += run.count;

  if (tile->num_runs > 0) {
    KvRun& last = tile->runs[tile->num_runs - 1];
    if (last.bitmap < 0 && run.bitmap < 0 && last.key + last.count == run.key) {
      last.count += run.count;
      last.cut_by_band |= run.cut_by_band;
      return;
    }
  }
  tile->runs[tile->num_runs++] = run;
}

bool KvTiles::next(KvTile* tile) {
  tile->num_runs = 0;
  tile->num_keys = 0;
  while (tile->num_keys < kTileKv && (key_ < key_end_ || next_block())) append_run(tile);
  return tile->num_keys > 0;
}

}  // namespace sparsek::attn::cpu
