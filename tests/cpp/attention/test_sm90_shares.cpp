// Lists of q tiles that several CTAs of the sm90 backend share.

#include "attention/pack_gqa.h"
#include "attention/sm90/shares.h"
#include "attention/sm90_problems.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

void check_shares(const Problem& p, int tiles, int parts) {
  const sm90::Shares shares = sm90::choose(p).shares;
  CHECK_EQ(shares.tiles, tiles, p.num_q_heads, p.q_len, p.head_dim);
  CHECK_EQ(shares.parts, parts, p.num_q_heads, p.q_len, p.head_dim);
  CHECK_EQ(sm90::choose(p).log2_splits, 0, p.num_q_heads, p.q_len, p.head_dim);
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
    CHECK(choice.shares.parts >= 2, shape.head_dim, shape.q_block);
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
  check_shares(p, 0, 0);  // 68 of 132 wait for none
}

/// The parts of a list are all of it, once.
void test_parts_cover_the_list() {
  for (const std::int64_t entries : {0, 1, 7, 31, 32, 1000}) {
    for (const int parts : {2, 3, 12, 32}) {
      const sm90::Shares shares{5, parts};
      const ListRange list{100, 100 + entries};
      std::int64_t next = -1;
      for (int part = 0; part < num_parts(shares); ++part) {
        if (part % parts == 0) next = list.begin;
        CHECK_EQ(tile_of_part(shares, part), part / parts);
        const ListRange share = share_of(list, shares, part);
        CHECK_EQ(share.begin, next, entries, parts, part);
        CHECK(share.end - share.begin >= entries / parts, entries, parts, part);
        next = share.end;
        if (part % parts == parts - 1) CHECK_EQ(next, list.end, entries, parts, part);
      }
    }
  }
}

}  // namespace

int main() {
  test_shares_of_few_tiles();
  test_shares_of_the_last_round();
  test_parts_cover_the_list();
  return failures() != 0;
}
