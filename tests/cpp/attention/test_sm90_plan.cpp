// What the sm90 backend decides before a kernel runs: which kernel computes a problem. In how many
// parts: test_sm90_shares.cpp.

#include "attention/backends.h"
#include "attention/sm90/choice.h"
#include "attention/sm90_problems.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

/// Several queries, as in speculative decoding: heads are packed where that halves the tiles at
/// least.
void test_packed_heads() {
  Problem p = one_query();
  p.q_len = 4;
  p.band = make_band(4, p.kv_len, true, std::nullopt, std::nullopt);
  std::optional<Problem> memory;
  const Problem& packed = sm90::pack_heads(p, &memory);
  CHECK_EQ(packed.packed_heads, 4);
  CHECK_EQ(packed.q_len, 16);
  CHECK_EQ(packed.num_q_heads, 8);
  CHECK_EQ(packed.band.end(3), p.kv_len);
  check_choice(packed, 128, 128, 128, 128);
  CHECK_EQ(sm90::choose(packed).num_q_tiles, 1);
  CHECK_EQ(sm90::choose(packed).shares.parts.value(), 16);
  CHECK(!sm90::choose(packed).counted);
  p.batch = 64;  // 512 tiles: each has all keys, and is written where it belongs
  CHECK_EQ(sm90::choose(sm90::pack_heads(p, &memory)).shares.tiles, 0);
  CHECK_EQ(sm90::choose(*memory).num_ctas, 132);

  p.num_q_heads = 56;  // 18 queries of 7 heads in a tile, the last two rows empty
  p.q_len = 19;
  CHECK_EQ(sm90::pack_heads(p, &memory).packed_heads, 7);
  CHECK_EQ(sm90::choose(*memory).num_q_tiles, 2);
  const auto is_left = [&](const Problem& left) {
    return &sm90::pack_heads(left, &memory) == &left;
  };
  p.q_len = 27;  // three warpgroups instead of seven
  CHECK(!is_left(p));
  p.q_len = 28;
  CHECK(is_left(p));
  p.q_len = 4;
  CHECK(!is_left(p));
  p.kv_len = 1023;
  CHECK(is_left(p));
  p.kv_len = 4096;
  p.has_mask = true;
  p.q_block = p.kv_block = 64;
  p.listed_keys = 2048;
  CHECK(is_left(p));
  p.lists_of_kv_heads = true;
  for (const bool partial : {false, true}) {
    p.partial_blocks = partial;
    CHECK(!is_left(p));
    CHECK_EQ(memory->q_len, 28, partial);
    check_choice(*memory, 128, 128, 128, 128);
    CHECK(sm90::choose(*memory).kernel->lists, partial);
    CHECK(sm90::choose(*memory).kernel->packs, partial);
    CHECK(sm90::choose(*memory).keys_read_once, partial);
  }
  p.listed_keys = 1023;
  CHECK(is_left(p));
  p.has_mask = false;
  p.num_kv_heads = 56;
  CHECK(is_left(p));
  p.num_kv_heads = 1;
  p.num_q_heads = 129;  // a query has more heads than a tile rows
  CHECK(is_left(p));

  for (const int heads : {1, 2, 3, 7, 64, 100}) {
    const sm90::Rows rows = sm90::make_rows(128, heads, 128 * heads);
    CHECK_EQ(rows.of_tile, 128 / heads * heads, heads);
    CHECK_EQ(sm90::make_rows(128, heads, heads).of_tile, heads, heads);  // no more than there are
    for (int row = 0; row < 128 * 100; ++row) CHECK_EQ(rows.query(row), row / heads, row, heads);
  }
}

void test_choice() {
  Problem long_batch = problem(64, 64, 16384);
  long_batch.batch = 2;
  check_choice(long_batch, 64, 64, 192, 128);
  long_batch.head_dim = long_batch.value_dim = 8;
  check_choice(long_batch, 64, 64, 192, 128);
  check_choice(problem(64, 64, 1024), 64, 64, 128, 64);  // 96 tiles of 192 would leave SMs idle
  check_choice(problem(80, 80, 16384), 96, 96, 192, 112);
  check_choice(problem(80, 80, 1024), 96, 96, 128, 128);
  check_choice(problem(128, 128, 16384), 128, 128, 192, 80);
  check_choice(problem(64, 128, 16384), 128, 128, 192, 80);
  check_choice(problem(128, 128, 1024), 128, 128, 128, 128);
  check_choice(problem(192, 128, 16384), 192, 128, 192, 80);
  check_choice(problem(192, 128, 1024), 192, 128, 128, 128);
  check_choice(problem(192, 192, 4096), 192, 192, 128, 112);
  check_choice(problem(256, 256, 4096), 256, 256, 128, 80);

  Problem batched = problem(64, 64, 1024);  // 1024 is four times 256, and 5.3 times 192
  batched.batch = 32;
  check_choice(batched, 64, 64, 256, 64);
  batched = problem(128, 128, 1024);
  batched.batch = 16;
  check_choice(batched, 128, 128, 128, 128);
  batched.causal = true;
  batched.band = make_band(1024, 1024, true, std::nullopt, std::nullopt);
  check_choice(batched, 128, 128, 128, 128);
  CHECK_EQ(sm90::choose(batched).section, 32);
  batched = problem(128, 128, 2048);
  batched.batch = 8;
  check_choice(batched, 128, 128, 192, 80);

  // 64 queries see 575 keys, nine tiles of 64 or five of 128, or 2111, 33 or 17.
  Problem window = problem(64, 64, 16384);
  window.num_q_heads = window.num_kv_heads = 32;
  window.band = make_band(16384, 16384, true, 511, std::nullopt);
  check_choice(window, 64, 64, 256, 64);
  window.band = make_band(16384, 16384, true, 2047, std::nullopt);
  check_choice(window, 64, 64, 192, 128);

  // The shapes by which the GPU tests reach the widest tiles.
  Problem heads = problem(64, 64, 350);
  heads.num_q_heads = heads.num_kv_heads = 66;
  check_choice(heads, 64, 64, 192, 128);
  heads.q_len = 250;
  heads.batch = 2;
  check_choice(heads, 64, 64, 256, 64);
  heads.batch = 1;
  heads.q_len = 350;
  for (const int head_dim : {96, 128}) {
    heads.head_dim = heads.value_dim = head_dim;
    CHECK_EQ(sm90::choose(heads).kernel->tile_q, 192, head_dim);
  }
  heads.head_dim = 192;
  check_choice(heads, 192, 128, 192, 80);
  heads.head_dim = heads.value_dim = 64;
  heads.has_mask = true;
  heads.q_block = 128;
  check_choice(heads, 64, 64, 128, 64);
  CHECK_EQ(sm90::choose(heads).kernel->teams, 2);

  Problem lists = problem(64, 64, 16384);
  lists.has_mask = true;
  lists.kv_block = 64;
  lists.q_block = 128;
  check_choice(lists, 64, 64, 128, 64);
  CHECK(sm90::choose(lists).counted);
  CHECK_EQ(sm90::choose(lists).num_ctas, 132);
  lists.q_len = 1024;  // 128 tiles: a CTA each
  check_choice(lists, 64, 64, 128, 128);
  CHECK(!sm90::choose(lists).counted);
  lists.q_len = 2048;  // 256 tiles: all at once by two teams
  check_choice(lists, 64, 64, 128, 64);
  CHECK(!sm90::choose(lists).counted);
  lists.q_len = 16384;
  lists.q_block = 192;
  check_choice(lists, 64, 64, 64, 128);
  lists.q_block = 64;
  check_choice(lists, 64, 64, 64, 128);
  CHECK_EQ(sm90::choose(lists).num_ctas, 132);
  CHECK_EQ(sm90::choose(lists).kernel->teams, 3);
  lists.head_dim = lists.value_dim = 96;
  check_choice(lists, 128, 128, 64, 64);
  CHECK_EQ(sm90::choose(lists).kernel->teams, 3);
  lists.head_dim = lists.value_dim = 192;  // narrow tiles of 192 are not compiled
  check_choice(lists, 256, 256, 64, 64);
  lists.q_len = lists.kv_len = 256;
  CHECK(!sm90::choose(lists).counted);

  Problem far = problem(128, 128, 32768);
  far.has_mask = true;
  far.q_block = far.kv_block = 128;
  CHECK(!sm90::choose(far).alternate);  // L2 has K and V of two heads
  far.kv_len = 131072;
  CHECK(sm90::choose(far).alternate);
  far.q_len = 131072;
  far.listed_keys = 16 * 128;  // 132 q tiles read them twice in a round
  CHECK(sm90::choose(far).together);
  far.listed_keys = 15 * 128;
  CHECK(!sm90::choose(far).together);
  far.listed_keys = 16 * 128;
  far.head_dim = far.value_dim = 64;  // L2 has K and V of a head
  CHECK(!sm90::choose(far).together);
  far.head_dim = far.value_dim = 128;
  far.q_len = 32768;
  CHECK_EQ(sm90::choose(far).section, 0);
  far.num_kv_heads = 4;
  far.lists_of_kv_heads = true;
  CHECK_EQ(sm90::choose(far).section, 4);
  far.has_mask = far.lists_of_kv_heads = false;
  CHECK(!sm90::choose(far).alternate);

  Problem dense = problem(128, 128, 65536);  // K and V of a head: 32 MB
  CHECK(sm90::choose(dense).in_step);
  dense.kv_len = 65535;
  CHECK(!sm90::choose(dense).in_step);
  dense.kv_len = 65536;
  dense.q_len = 192;  // a q tile for each head, which nobody shares the keys of
  CHECK(!sm90::choose(dense).in_step);
  dense.q_len = 65536;
  dense.band = make_band(65536, 65536, true, std::nullopt, std::nullopt);
  CHECK(!sm90::choose(dense).in_step);
  dense.band = make_band(65536, 65536, false, 32768, 32768);
  CHECK(!sm90::choose(dense).in_step);
  dense.band = make_band(65536, 65536, false, 65536, std::nullopt);  // hides nothing
  CHECK(sm90::choose(dense).in_step);
  dense.head_dim = dense.value_dim = 64;
  CHECK(!sm90::choose(dense).in_step);

  Problem causal = problem(128, 128, 4096);
  CHECK_EQ(sm90::choose(causal).section, 0);
  causal.band = make_band(4096, 4096, true, std::nullopt, std::nullopt);
  CHECK_EQ(sm90::choose(causal).section, 16);
  CHECK(sm90::choose(causal).counted);
  causal.q_len = causal.kv_len = 2048;  // 176 tiles, of all heads together
  causal.band = make_band(2048, 2048, true, std::nullopt, std::nullopt);
  CHECK(!sm90::choose(causal).counted);
  causal.num_q_heads = causal.num_kv_heads = 24;  // 264
  CHECK(!sm90::choose(causal).counted);
  causal.num_q_heads = causal.num_kv_heads = 25;
  CHECK(sm90::choose(causal).counted);
  causal.q_len = causal.kv_len = 640;
  causal.num_q_heads = causal.num_kv_heads = 40;  // 200, more heads than a section has else
  causal.band = make_band(640, 640, true, std::nullopt, std::nullopt);
  CHECK(!sm90::choose(causal).counted);
  CHECK_EQ(sm90::choose(causal).section, 40);
  causal.q_len = causal.kv_len = 2048;
  causal.band = make_band(2048, 2048, true, std::nullopt, std::nullopt);
  CHECK(sm90::choose(causal).counted);
  CHECK_EQ(sm90::choose(causal).section, 20);  // not 32 and 8
  causal.num_kv_heads = 20;
  CHECK_EQ(sm90::choose(causal).section, 40);
  causal.num_q_heads = causal.num_kv_heads = 16;
  causal.q_len = causal.kv_len = 131072;
  causal.band = make_band(131072, 131072, true, std::nullopt, std::nullopt);
  CHECK_EQ(sm90::choose(causal).section, causal.num_q_heads / causal.num_kv_heads);
  CHECK(sm90::choose(causal).counted);
  CHECK(sm90::choose(problem(264, 264, 64)).kernel == nullptr);
}

/// Two teams for each q tile, in the shapes of tests/python/test_attention_sm90_tiles.py: where no
/// CTA gets a second tile, and keys are many.
void test_joined_teams() {
  const auto joins = [](const Problem& p) { return sm90::choose(p).kernel->joins; };
  const struct {
    int q_len, kv_len, heads;
    std::optional<std::int64_t> left, right;
    bool causal;
  } shapes[] = {{1000, 1000, 12, std::nullopt, std::nullopt, false},
                {300, 1100, 32, std::nullopt, std::nullopt, false},
                {900, 800, 12, std::nullopt, std::nullopt, true},
                {1000, 1000, 12, 700, 60, false}};
  for (const auto& shape : shapes) {
    Problem p = problem(64, 64, shape.q_len);
    p.kv_len = shape.kv_len;
    p.num_q_heads = p.num_kv_heads = shape.heads;
    p.band = make_band(shape.q_len, shape.kv_len, shape.causal, shape.left, shape.right);
    CHECK(joins(p), shape.q_len, shape.kv_len);
    CHECK(!sm90::choose(p).counted, shape.q_len, shape.kv_len);
    CHECK_EQ(sm90::choose(p).num_ctas, (shape.q_len + 127) / 128 * shape.heads, shape.q_len);
    p.head_dim = p.value_dim = 96;
    CHECK(!joins(p), shape.q_len, shape.kv_len);
  }
  CHECK(joins(problem(64, 64, 1024)));
  Problem p = problem(64, 64, 1024);
  p.kv_len = 767;
  p.band = make_band(1024, 767, false, std::nullopt, std::nullopt);
  CHECK(!joins(p));
  p = problem(64, 64, 1024);
  p.num_q_heads = p.num_kv_heads = 17;  // 136 tiles
  CHECK(!joins(p));
}

/// Two even rounds, and sections, in the shapes of tests/python/test_attention_sm90_tiles.py.
void test_unequal_tiles() {
  const auto causal = [](int head_dim, int q_len, int kv_len, int heads, int kv_heads) {
    Problem p = problem(head_dim, head_dim, q_len);
    p.kv_len = kv_len;
    p.num_q_heads = heads;
    p.num_kv_heads = kv_heads;
    p.band = make_band(q_len, kv_len, true, std::nullopt, std::nullopt);
    return p;
  };
  for (const int head_dim : {64, 96, 128, 256}) {
    const int q_len = head_dim == 64 ? 1000 : 640;
    for (const Problem& p :
         {causal(head_dim, 1300, 1500, 24, 8), causal(head_dim, q_len, q_len + 200, 40, 40)}) {
      const sm90::Choice choice = sm90::choose(p);
      CHECK(choice.num_tiles > 132 && !choice.counted, head_dim, choice.num_tiles);
    }
  }
  CHECK(!sm90::choose(causal(256, 896, 896, 37, 37)).counted);
  CHECK(sm90::choose(causal(256, 896, 1300, 37, 37)).counted);  // K and V: 49 MB
  for (const int head_dim : {64, 128}) {
    CHECK_EQ(sm90::choose(causal(head_dim, 900, 900, 70, 70)).section, 24, head_dim);
    Problem p = causal(head_dim, 900, 900, 24, 12);
    p.batch = 5;
    CHECK_EQ(sm90::choose(p).section, 60, head_dim);  // of 60 kv heads 30 and 30
    CHECK(sm90::choose(p).counted, head_dim);
  }
}

/// Nothing to compute, of which backends are asked all the same.
void test_no_tiles() {
  for (const bool has_mask : {false, true}) {
    Problem some = problem(128, 128, 1024);
    some.band = make_band(1024, 1024, true, std::nullopt, std::nullopt);
    some.has_mask = has_mask;
    some.q_block = some.kv_block = 128;
    Problem no_batch = some, no_heads = some, no_queries = some;
    no_batch.batch = 0;
    no_heads.num_q_heads = no_heads.num_kv_heads = 0;
    no_queries.q_len = 0;
    for (const Problem& none : {no_batch, no_heads, no_queries}) {
      CHECK_EQ(sm90::choose(none).num_tiles, 0, has_mask);
      for (const AttentionBackend& backend : backends()) {
        if (backend.supports(none)) continue;
        CHECK_EQ(backend.workspace_bytes(none), std::size_t{0}, backend.name, has_mask);
      }
    }
  }
}

/// What the backend declines, and in which words.
void test_reasons() {
  const auto reason = [](const Problem& p) {
    for (const AttentionBackend& backend : backends()) {
      if (std::string(backend.name) == "sm90") return backend.supports(p).value_or("");
    }
    return std::string("no such backend");
  };
  const auto expect = [&](const Problem& p, const std::string& text) {
    const std::string got = reason(p);
    CHECK(got.find(text) != std::string::npos, text, got);
  };
  CHECK_EQ(reason(problem(64, 64, 100)), std::string());
  expect(problem(320, 64, 100), "head_dim is 320, expected at most 256");
  expect(problem(64, 320, 100), "value_dim is 320, expected at most 256");
  Problem p = problem(64, 64, 100);
  p.has_mask = true;
  p.q_block = 64;
  p.kv_block = 24;
  expect(p, "mask blocks are 64 x 24, expected multiples of 64 x 16");
  p.q_block = 32;
  p.kv_block = 16;
  expect(p, "mask blocks are 32 x 16");
  p = problem(64, 64, 100);
  p.v_alignment = 8;
  expect(p, "v has rows at multiples of 8 bytes, expected 16 (TMA)");
  p = problem(64, 64, 100);
  p.scale = -1;
  expect(p, "scale is -1, expected a positive finite number");
  p = problem(64, 64, 100);
  p.wants_weights = true;
  CHECK_EQ(reason(p), std::string());
  p = problem(64, 64, 100);
  p.dtype = DType::float32;
  expect(p, "dtype is float32, expected float16 or bfloat16");
  p = problem(64, 64, 100);
  p.device.compute_capability = 80;
  expect(p, "sm_80), expected sm_90");
  p = problem(64, 64, std::int64_t{1} << 30);
  expect(p, "lengths are 1073741824");
}

}  // namespace

int main() {
  test_choice();
  test_joined_teams();
  test_unequal_tiles();
  test_packed_heads();
  test_no_tiles();
  test_reasons();
  return failures() != 0;
}
