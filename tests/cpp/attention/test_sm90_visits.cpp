// How the sm90 backend visits keys and q tiles, before a kernel runs.

#include <algorithm>
#include <set>
#include <vector>

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/sm90/list_grid.h"
#include "attention/sm90/piece_grid.h"
#include "attention/sm90/schedule.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

/// Every allowed pair lies in the visited range, and a range that needs no erasing has only such.
void test_visited_keys_cover_the_band() {
  const std::optional<std::int64_t> bounds[] = {std::nullopt, 0, 5, 90};
  for (const int q_len : {1, 63, 64, 200}) {
    for (const int kv_len : {1, 64, 150, 333}) {
      for (const bool causal : {false, true}) {
        for (const auto& left : bounds) {
          for (const auto& right : bounds) {
            const Band band = make_band(q_len, kv_len, causal, left, right);
            for (int begin = 0; begin < q_len; begin += 64) {
              const int end = std::min(begin + 64, q_len);
              const KeyRange visible = visible_keys(band, begin, end);
              const KeyRange shared = shared_keys(band, begin, end);
              for (int key = 0; key < kv_len; ++key) {
                int seen = 0;
                for (int query = begin; query < end; ++query) {
                  seen += key >= band.begin(query) && key < band.end(query);
                }
                CHECK(seen == 0 || meets(visible, key, key + 1), q_len, kv_len, begin, key);
                CHECK(!contains(shared, key, key + 1) || seen == end - begin, q_len, kv_len, begin,
                      key);
              }
            }
          }
        }
      }
    }
  }
}

/// However tiles and blocks divide each other, a list's keys come once each and in order.
void test_pieces_cover_the_list() {
  for (const int tile_kv : {64, 96, 112, 128, 176}) {
    for (const int kv_block : {16, 32, 48, 64, 96, 128, 256, 384}) {
      const sm90::PieceGrid grid = sm90::make_piece_grid(tile_kv, kv_block);
      CHECK_EQ(grid.per_tile * grid.keys, tile_kv, kv_block);
      CHECK_EQ(grid.per_block * grid.keys, kv_block, tile_kv);
      const int num_blocks = 5;
      int expected = 0;
      for (int tile = 0; expected < num_blocks * kv_block; ++tile) {
        for (int lane = 0; lane < grid.per_tile; ++lane) {
          // As the producer's lane counts.
          int entry = lane / grid.per_block;
          int piece = lane % grid.per_block;
          for (int i = 0; i < tile; ++i) {
            entry += grid.entry_step;
            piece += grid.piece_step;
            if (piece >= grid.per_block) {
              piece -= grid.per_block;
              ++entry;
            }
          }
          CHECK_EQ(entry * kv_block + piece * grid.keys, expected, tile_kv, kv_block, tile, lane);
          expected += grid.keys;
        }
      }
    }
  }
}

/// Every q tile of every head is visited once.
void test_schedule_visits_every_tile_once() {
  for (const int num_q_tiles : {1, 3, 10}) {
    for (const int num_heads : {1, 5, 16}) {
      for (const int batch : {1, 3}) {
        for (const int section : {0, 1, 16}) {
          for (const int ctas : {1, 7, 132}) {
            sm90::Schedule schedule;
            schedule.num_q_tiles = num_q_tiles;
            schedule.num_heads = num_heads;
            schedule.num_tiles = num_q_tiles * num_heads * batch;
            schedule.section = section;
            std::set<std::vector<int>> seen;
            for (int cta = 0; cta < ctas; ++cta) {
              for (int round = 0;; ++round) {
                const int place = sm90::place_of(round, cta, ctas);
                if (place >= schedule.num_tiles) break;
                const sm90::QTile tile = sm90::tile_at(schedule, place);
                CHECK(tile.q_tile >= 0 && tile.q_tile < num_q_tiles && tile.head >= 0 &&
                      tile.head < num_heads && tile.batch >= 0 && tile.batch < batch);
                const bool fresh = seen.insert({tile.q_tile, tile.head, tile.batch}).second;
                CHECK(fresh, place, num_q_tiles, num_heads, batch, section, ctas);
              }
            }
            CHECK_EQ(static_cast<int>(seen.size()), schedule.num_tiles, section, ctas);
          }
        }
      }
    }
  }
}

/// The list of a tile, found without a division, is that of its queries.
void test_list_grid() {
  for (const std::int64_t q_len : {1, 127, 1000, 4096}) {
    for (const std::int64_t q_block : {64, 128, 384}) {
      for (const std::int64_t lists : {1, 3, 12}) {  // of a batch, of 12 query heads
        BlockMaskView mask;
        mask.q_len = q_len;
        mask.kv_len = 1000;
        mask.q_block = q_block;
        mask.kv_block = 48;
        mask.num_heads = lists;
        for (const std::int64_t tile_q : {64, 128}) {
          if (q_block % tile_q != 0) continue;
          for (const std::int64_t batches : {1, 5}) {
            mask.num_batches = batches;
            const sm90::ListGrid grid = sm90::make_list_grid(mask, tile_q, 12);
            CHECK_EQ(grid.num_kv_blocks, 21);
            for (std::int32_t head = 0; head < 12; ++head) {
              for (std::int32_t tile = 0; tile * tile_q < q_len; ++tile) {
                CHECK_EQ(grid.list_number(4, head, tile),
                         list_number(mask, 4, head, 12, tile * tile_q / q_block), q_len, q_block,
                         lists, tile_q, head, tile);
              }
            }
          }
        }
      }
    }
  }
  // Packed heads, of which one tile may have more rows than the block queries.
  BlockMaskView mask;
  mask.q_len = mask.q_block = 64;
  mask.num_heads = 8;
  mask.kv_block = 64;
  CHECK_EQ(sm90::make_list_grid(mask, 128, 8).list_number(0, 7, 0), 7);
}

}  // namespace

int main() {
  test_visited_keys_cover_the_band();
  test_pieces_cover_the_list();
  test_schedule_visits_every_tile_once();
  test_list_grid();
  return failures() != 0;
}
