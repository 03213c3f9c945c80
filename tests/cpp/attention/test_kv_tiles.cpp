// The visited tiles cover every allowed pair once, and nothing outside of the lists and the band.
#include <vector>

#include "attention/cpu/kv_tiles.h"
#include "attention/random_mask.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;
using namespace sparsek::attn::cpu;

namespace {

/// How often each pair is visited and survives.
std::vector<int> visits(const BlockMaskView* mask, const Band& band, std::int64_t q_len,
                        std::int64_t largest_tile, std::int64_t head) {
  std::vector<int> seen(static_cast<std::size_t>(q_len * band.kv_len), 0);
  const QTiling tiling(mask, q_len, largest_tile);
  std::int64_t queries = 0;
  for (std::int64_t number = 0; number < tiling.size(); ++number) {
    QTile q_tile;
    if (!tiling.tile(number, &q_tile)) continue;
    CHECK(q_tile.size() >= 1 && q_tile.size() <= largest_tile, q_tile.begin, q_tile.end);
    queries += q_tile.size();
    KvTiles kv_tiles(mask, band, 0, head, mask != nullptr ? mask->num_heads : 1, q_tile);
    bool last = false;
    for (KvTile tile; kv_tiles.next(&tile);) {
      CHECK(!last);  // only the last tile may be less than full
      last = tile.num_keys < kTileKv;
      std::int64_t row = 0;
      bool whole = true;
      for (std::int64_t i = 0; i < tile.num_runs; ++i) {
        const KvRun& run = tile.runs[i];
        CHECK_EQ(run.row, row);
        row += run.count;
        CHECK(run.count >= 1 && run.key >= 0 && run.key + run.count <= band.kv_len, run.key,
              run.count);
        for (std::int64_t query = q_tile.begin; query < q_tile.end; ++query) {
          for (std::int64_t j = 0; j < run.count; ++j) {
            const std::int64_t key = run.key + j;
            bool survives = true;
            if (run.cut_by_band) survives = key >= band.begin(query) && key < band.end(query);
            if (run.bitmap >= 0) {
              const std::int64_t bit = run.bitmap_col + j;
              const std::uint32_t* bits =
                  bitmap_row(*mask, run.bitmap, query - q_tile.q_block * mask->q_block);
              survives = survives && (bits[bit / 32] >> (bit % 32) & 1);
            }
            whole = whole && survives;
            seen[query * band.kv_len + key] += survives;
          }
        }
      }
      CHECK_EQ(row, tile.num_keys);
      CHECK(!tile.whole() || whole);
    }
  }
  CHECK_EQ(queries, q_len);
  return seen;
}

void test_band_alone() {
  for (const std::int64_t q_len : {1, 5, 64, 200}) {
    for (const std::int64_t kv_len : {1, 63, 128, 300}) {
      for (const std::int64_t left : {0, 3, 100, 1000}) {
        const Band band = make_band(q_len, kv_len, left % 2 == 1, left, left / 2);
        const std::vector<int> seen = visits(nullptr, band, q_len, 64, 0);
        for (std::int64_t query = 0; query < q_len; ++query) {
          for (std::int64_t key = 0; key < kv_len; ++key) {
            const bool expected = key >= band.begin(query) && key < band.end(query);
            CHECK_EQ(seen[query * kv_len + key], int(expected), q_len, kv_len, left, query, key);
          }
        }
      }
    }
  }
}

void test_lists_and_band(const MaskCase& c) {
  OwnedMask mask;
  make_random_mask(c, &mask);
  for (const bool causal : {false, true}) {
    const Band band =
        make_band(c.q_len, c.kv_len, causal,
                  causal ? std::optional<std::int64_t>(70) : std::nullopt, std::nullopt);
    const std::int64_t head = c.num_heads - 1;
    const std::vector<bool> dense = mask_to_dense(mask, 0, head);
    const std::vector<int> seen = visits(&mask.view, band, c.q_len, 32, head);
    for (std::int64_t query = 0; query < c.q_len; ++query) {
      for (std::int64_t key = 0; key < c.kv_len; ++key) {
        const bool expected =
            dense[query * c.kv_len + key] && key >= band.begin(query) && key < band.end(query);
        CHECK_EQ(seen[query * c.kv_len + key], int(expected), c.q_block, c.kv_block, causal, query,
                 key);
      }
    }
  }
}

/// Blocks that the lists do not name cost nothing: as many tiles as the listed keys fill.
void test_number_of_tiles() {
  OwnedMask mask;
  make_random_mask({128, 4096, 128, 16, 1, 1, 0.1}, &mask);
  const Band band = make_band(128, 4096, false, std::nullopt, std::nullopt);
  KvTiles kv_tiles(&mask.view, band, 0, 0, 1, QTile{0, 128, 0});
  std::int64_t tiles = 0;
  for (KvTile tile; kv_tiles.next(&tile);) ++tiles;
  CHECK_EQ(tiles, (mask.view.num_indices * 16 + kTileKv - 1) / kTileKv);
}

}  // namespace

int main() {
  test_band_alone();
  for (const bool bitmaps : {false, true}) {
    for (const bool padded : {false, true}) {
      test_lists_and_band({200, 300, 64, 64, 1, 1, 0.5, padded, bitmaps});
      test_lists_and_band({70, 130, 16, 1, 1, 2, 0.4, padded, bitmaps});
      test_lists_and_band({37, 400, 7, 33, 1, 1, 0.7, padded, bitmaps});
      test_lists_and_band({50, 500, 1, 200, 1, 3, 0.5, padded, bitmaps});
      test_lists_and_band({90, 100, 1000, 1000, 1, 1, 1.0, padded, bitmaps});
    }
  }
  test_number_of_tiles();
  return failures() != 0;
}
