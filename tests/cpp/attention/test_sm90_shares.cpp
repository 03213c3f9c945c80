// Q tiles whose keys several CTAs of the sm90 backend share.

#include <algorithm>

#include "attention/kv_visits.h"
#include "attention/pack_gqa.h"
#include "attention/sm90/shares.h"
#include "attention/sm90_problems.h"
#include "check.h"
#include "core/integers.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

void check_shares(const Problem& p, int tiles, int parts) {
  const sm90::Shares shares = sm90::choose(p).shares;
  CHECK_EQ(shares.tiles, tiles, p.num_q_heads, p.q_len, p.head_dim);
  if (tiles > 0) CHECK_EQ(shares.parts.value(), parts, p.num_q_heads, p.q_len, p.head_dim);
}

/// The parts of a tile's keys are all of them, once, and begin at whole steps of keys.
void test_parts_cover_the_keys(const Problem& p) {
  const sm90::Choice choice = sm90::choose(p);
  const sm90::Shares& shares = choice.shares;
  CHECK_EQ(shares.tiles > 0, p.kv_len >= 5000, p.kv_len, p.q_len);
  if (shares.tiles == 0) return;
  const int tile_q = choice.kernel->tile_q, tile_kv = choice.kernel->tile_kv;
  for (std::int32_t tile = 0; tile < choice.num_q_tiles; ++tile) {
    const std::int32_t begin = tile * tile_q;
    const auto end = static_cast<std::int32_t>(std::min<std::int64_t>(begin + tile_q, p.q_len));
    const KeyRange visible = visible_keys(p.band, begin, end);
    std::int32_t next = visible.begin;
    for (int i = 0; i < shares.parts.value(); ++i) {
      const KeyRange range = sm90::share_of(visible, shares.parts, i, tile_kv);
      if (range.begin >= range.end) continue;
      CHECK_EQ(range.begin, next, tile, i);
      CHECK((range.begin - visible.begin) % tile_kv == 0, tile, i);
      next = range.end;
    }
    CHECK(next == visible.end || visible.end < visible.begin, tile, next, visible.end);
  }
}

void test_shares_without_lists() {
  Problem p = one_query();
  std::optional<Problem> memory;
  const Problem& packed = pack_gqa(p, &memory);
  CHECK_EQ(packed.q_len, 4);
  CHECK_EQ(packed.num_q_heads, 8);
  CHECK_EQ(packed.kv_len, 131072);
  CHECK(is_unbounded(packed.band, packed.q_len));
  check_choice(packed, 128, 128, 128, 128);
  check_shares(packed, 8, 16);  // of 132 SMs
  CHECK_EQ(sm90::choose(packed).num_ctas, 128);
  p.window_left = 1999;
  p.band = make_band(1, p.kv_len, true, 1999, std::nullopt);
  pack_gqa(p, &memory);
  CHECK_EQ(packed.kv_len, 2000);
  check_shares(packed, 8, 6);  // 16 steps of keys: 3 of them at most
  Problem batch = packed;
  batch.kv_len = 32768;
  batch.band = make_band(batch.q_len, batch.kv_len, false, std::nullopt, std::nullopt);
  batch.batch = 10;
  check_shares(batch, 80, 8);  // 5 rounds of 640 leave fewer idle than one
  CHECK_EQ(sm90::choose(batch).num_ctas, 132);
  CHECK(!sm90::choose(batch).counted);
  test_parts_cover_the_keys(batch);
  batch.batch = 16;
  check_shares(batch, 0, 0);  // 128 tiles
  batch.batch = 20;
  check_shares(batch, 28, 4);  // 132 tiles are taken whole
  CHECK_EQ(sm90::choose(batch).num_ctas, 132);
  batch.batch = 1 << 20;
  check_shares(batch, 0, 0);
  batch = problem(128, 128, 4096);  // 96 tiles of 128, whose keys others read too
  batch.num_q_heads = batch.num_kv_heads = 3;
  check_shares(batch, 0, 0);
  check_shares(problem(64, 64, 1024), 0, 0);  // 128 tiles
  batch = problem(64, 64, 1024);  // tiles of 128 by two teams each, or of 64 in two parts
  batch.num_q_heads = batch.num_kv_heads = 12;
  check_shares(batch, 0, 0);
  batch.num_q_heads = batch.num_kv_heads = 8;
  check_shares(batch, 128, 3);
  for (const std::int64_t q_len : {3, 200, 900}) {
    for (const std::int64_t kv_len : {100, 5000, 8192, 100003}) {
      for (const bool causal : {false, true}) {
        for (const auto& left :
             {std::optional<std::int64_t>(), std::optional<std::int64_t>(3000)}) {
          Problem few = problem(128, 128, q_len);
          few.num_q_heads = 4;
          few.num_kv_heads = 2;
          few.kv_len = kv_len;
          few.band = make_band(q_len, kv_len, causal, left, std::nullopt);
          test_parts_cover_the_keys(few);
        }
      }
    }
  }
}

/// Decoding with lists: heads that share one are packed, and CTAs share a long one.
void test_shares_of_few_tiles() {
  Problem p = one_query();
  p.has_mask = true;
  p.q_block = 128;
  p.kv_block = 64;
  p.listed_keys = 64 * 64;
  std::optional<Problem> memory;
  CHECK_EQ(pack_gqa(p, &memory).num_q_heads, 32);  // each has a list
  check_choice(p, 128, 128, 64, 64);  // of the tiles that q_block allows, the one for few queries
  check_shares(p, 32, 12);            // 384 for 396 teams
  CHECK_EQ(sm90::choose(p).num_ctas, 132);
  CHECK(!sm90::choose(p).counted);
  CHECK(!sm90::choose(p).keys_read_once);
  p.kv_block = 2048;  // two blocks
  check_shares(p, 32, 2);
  CHECK_EQ(sm90::choose(p).num_ctas, 64);
  p.kv_block = 64;
  p.listed_keys = 511;
  check_shares(p, 0, 0);
  p.listed_keys = 64 * 64;
  p.head_dim = p.value_dim = 64;  // as many bytes
  check_shares(p, 32, 8);
  p.head_dim = p.value_dim = 128;

  p.lists_of_kv_heads = true;
  CHECK(!sm90::choose(p).keys_read_once);
  CHECK_EQ(pack_gqa(p, &memory).num_q_heads, 8);
  CHECK_EQ(memory->q_len, 4);
  CHECK_EQ(memory->q_block, 128);
  CHECK(is_unbounded(memory->band, memory->q_len));
  check_shares(*memory, 8, 16);
  CHECK(sm90::choose(*memory).keys_read_once);
  p.num_kv_heads = 1;
  p.num_q_heads = 160;
  CHECK_EQ(pack_gqa(p, &memory).q_block, 256);  // one list still
  p.partial_blocks = true;
  CHECK_EQ(pack_gqa(p, &memory).num_q_heads, 160);
  p.partial_blocks = false;
  p.band = make_band(1, p.kv_len, true, 1999, std::nullopt);
  CHECK_EQ(pack_gqa(p, &memory).num_q_heads, 160);

  Problem many = problem(64, 64, 1024);
  many.has_mask = true;
  many.q_block = many.kv_block = 128;
  many.listed_keys = 1024;
  check_shares(many, 0, 0);  // 128 tiles
  many.num_q_heads = many.num_kv_heads = 4;
  check_shares(many, 32, 4);
  many.listed_keys = 1 << 20;
  many.q_len = 128;
  check_shares(many, 4, 2);  // no more keys than there are
  many.kv_len = 1 << 20;
  many.band = make_band(128, many.kv_len, false, std::nullopt, std::nullopt);
  check_shares(many, 4, 32);  // and no more parts than are added
}

/// The last of several rounds, in the shapes of tests/python/test_attention_sm90_shares.py.
void test_shares_of_the_last_round() {
  const struct {
    int head_dim, value_dim, q_block, heads, q_len, kv_len, teams, tiles;
  } shapes[] = {
      {64, 64, 128, 135, 200, 3600, 264, 6},  {64, 64, 64, 67, 380, 4800, 396, 6},
      {96, 96, 128, 70, 200, 1400, 132, 8},   {128, 128, 128, 70, 200, 1200, 132, 8},
      {128, 104, 256, 70, 200, 1200, 132, 8}, {128, 128, 64, 67, 380, 2500, 396, 6},
      {192, 128, 128, 70, 200, 1200, 132, 8}, {192, 192, 128, 70, 200, 1200, 132, 8},
      {256, 256, 128, 70, 200, 1200, 132, 8}, {256, 256, 64, 70, 120, 1200, 132, 8},
  };
  for (const auto& shape : shapes) {
    Problem p = problem(shape.head_dim, shape.value_dim, shape.q_len);
    p.num_q_heads = p.num_kv_heads = shape.heads;
    p.kv_len = shape.kv_len;
    p.band = make_band(p.q_len, p.kv_len, false, std::nullopt, std::nullopt);
    p.has_mask = true;
    p.q_block = shape.q_block;
    p.kv_block = 32;
    p.listed_keys = shape.kv_len * 9 / 10;
    const sm90::Choice choice = sm90::choose(p);
    CHECK_EQ(choice.shares.tiles, shape.tiles, shape.head_dim, shape.q_block);
    CHECK(choice.shares.parts.value() >= 2, shape.head_dim, shape.q_block);
    CHECK_EQ((choice.num_tiles - choice.shares.tiles) % shape.teams, 0, shape.head_dim);
    CHECK(num_parts(choice.shares) <= shape.teams, shape.head_dim, shape.q_block);
    CHECK(choice.counted && choice.num_ctas == 132, shape.head_dim, shape.q_block);
  }
  Problem p = problem(128, 128, 200);  // 140 tiles
  p.num_q_heads = p.num_kv_heads = 70;
  p.has_mask = true;
  p.q_block = p.kv_block = 128;
  p.kv_len = 1280;
  p.band = make_band(p.q_len, p.kv_len, false, std::nullopt, std::nullopt);
  p.listed_keys = 512;
  check_shares(p, 0, 0);  // too short to be worth it
  p.listed_keys = 1280;
  check_shares(p, 8, 5);
  p.num_q_heads = p.num_kv_heads = 100;
  check_shares(p, 0, 0);        // 68 of 132 wait for none
  p = problem(128, 128, 8192);  // 2048 tiles for 396 teams
  p.has_mask = true;
  p.q_block = p.kv_block = 64;
  p.listed_keys = 2048;
  check_shares(p, 68, 5);
  p.listed_keys = 1024;
  check_shares(p, 0, 0);
}

/// The parts of a list are all of it, once, in whole steps.
void test_parts_cover_the_list(int parts, int step) {
  const sm90::Shares shares{5, parts, step};
  for (const std::int64_t entries : {0, 1, 7, 31, 32, 1000}) {
    const ListRange list{100, 100 + entries};
    std::int64_t next = -1;
    for (int part = 0; part < num_parts(shares); ++part) {
      if (part % parts == 0) next = list.begin;
      CHECK_EQ(tile_of_part(shares, part), part / parts);
      const ListRange share = share_of(list, shares, part);
      CHECK_EQ(share.begin, next, entries, parts, step, part);
      const std::int64_t steps = ceil_div(share.end - share.begin, step);
      CHECK(steps >= ceil_div(entries, step) / parts, entries, parts, step, part);
      CHECK(share.end == list.end || (share.end - list.begin) % step == 0, entries, parts, step);
      next = share.end;
      if (part % parts == parts - 1) CHECK_EQ(next, list.end, entries, parts, step);
    }
  }
}

}  // namespace

int main() {
  test_shares_without_lists();
  test_shares_of_few_tiles();
  test_shares_of_the_last_round();
  for (const int parts : {2, 3, 12, 32}) {
    for (const int step : {1, 2, 3, 8}) test_parts_cover_the_list(parts, step);
  }
  return failures() != 0;
}
