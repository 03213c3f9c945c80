// Garbage in the lists: never an access outside the arrays (the sanitizers watch), never an index
// out of range.
#include <cmath>
#include <limits>
#include <vector>

#include "attention/block_lists.h"
#include "attention/random_mask.h"
#include "check.h"
#include "sparsek/attention.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int32_t kMax32 = std::numeric_limits<std::int32_t>::max();

void spoil(std::vector<std::int32_t>* values) {
  for (std::int32_t& value : *values) {
    const std::int32_t garbage[] = {value, -1, -2, kMax32, -kMax32 - 1, 5, 1000};
    value = garbage[random_int(0, 6)];
  }
}

void spoil(std::vector<std::int64_t>* values) {
  for (std::int64_t& value : *values) {
    const std::int64_t garbage[] = {value, -1, -kMax64 - 1, kMax64, 5, 1000};
    value = garbage[random_int(0, 5)];
  }
}

/// What the accessors hand out lies within the arrays.
void check_entries(const BlockMaskView& mask) {
  for (std::int64_t list = 0; list < mask.num_lists(); ++list) {
    const ListRange range = list_range(mask, list);
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
      CHECK(entry >= 0 && entry < mask.num_indices, list, entry);
      const ListedBlock block = listed_block(mask, entry);
      CHECK(block.kv_block >= -1 && block.kv_block < mask.num_kv_blocks(), block.kv_block);
      CHECK(block.bitmap >= -1 && block.bitmap < mask.num_bitmaps, block.bitmap);
    }
  }
}

void run_attention(const BlockMaskView& mask) {
  const std::int64_t heads = mask.num_heads, batch = mask.num_batches, dim = 8;
  Array q(DType::float32, random_floats(batch * mask.q_len * heads * dim));
  Array k(DType::float32, random_floats(batch * mask.kv_len * heads * dim)), v = k;
  Array out(DType::float32, batch * mask.q_len * heads * dim, kPoison);
  AttentionArgs args;
  args.q = contiguous_view(q.data(), DType::float32, {}, {batch, mask.q_len, heads, dim});
  args.k = contiguous_view(k.data(), DType::float32, {}, {batch, mask.kv_len, heads, dim});
  args.v = contiguous_view(v.data(), DType::float32, {}, {batch, mask.kv_len, heads, dim});
  args.out = contiguous_view(out.data(), DType::float32, {}, {batch, mask.q_len, heads, dim});
  args.mask = &mask;
  attention(args);
  for (const float value : out.floats()) CHECK(std::isfinite(value));
}

void test_garbage(bool padded, bool bitmaps) {
  OwnedMask mask;
  make_random_mask({70, 90, 16, 8, 2, 2, 0.5, padded, bitmaps}, &mask);
  check_entries(mask.view);
  run_attention(mask.view);
  spoil(&mask.indices);
  spoil(&mask.counts);
  spoil(&mask.offsets);
  spoil(&mask.bitmap_indices);
  check_entries(mask.view);
  run_attention(mask.view);
}

void test_list_number() {
  BlockMaskView mask;
  mask.q_len = 33;
  mask.q_block = 8;
  mask.num_heads = 3;
  CHECK_EQ(list_number(mask, 7, 2, 3, 4), 2 * 5 + 4);  // one batch serves all
  mask.num_batches = 8;
  CHECK_EQ(list_number(mask, 7, 2, 3, 4), (7 * 3 + 2) * 5 + 4);
  for (int head = 0; head < 12; ++head) {  // a list serves 4 query heads
    CHECK_EQ(list_number(mask, 7, head, 12, 4), (7 * 3 + head / 4) * 5 + 4, head);
  }
  mask.num_heads = 1;
  CHECK_EQ(list_number(mask, 7, 2, 3, 4), 7 * 5 + 4);
}

void test_no_blocks() {
  BlockMaskView mask;
  mask.q_len = mask.kv_len = 40;
  mask.q_block = mask.kv_block = 16;
  const std::vector<std::int64_t> offsets(4, 0);
  mask.offsets = offsets.data();
  check_entries(mask);
  run_attention(mask);
}

void test_lowest_bits() {
  for (std::int32_t count = -40; count <= 80; ++count) {
    const std::uint32_t bits = lowest_bits(count);
    for (std::int32_t bit = 0; bit < 32; ++bit) CHECK((bits >> bit & 1) == (bit < count ? 1u : 0u));
  }
  CHECK(lowest_bits(-kMax32) == 0);
  CHECK(lowest_bits(kMax32) == ~0u);
}

void test_check_block_mask() {
  OwnedMask mask;
  make_random_mask({70, 90, 16, 8, 1, 1, 0.9, false, true}, &mask);
  check_block_mask(mask.view);
  const std::int32_t good = mask.indices[1];
  mask.indices[1] = 12;
  CHECK_THROWS(ErrorKind::invalid_value, "mask.indices[1]: expected 0 to 11, got 12",
               check_block_mask(mask.view));
  mask.indices[1] = mask.indices[0];
  CHECK_THROWS(ErrorKind::invalid_value, "is listed twice in list 0", check_block_mask(mask.view));
  mask.indices[1] = good;
  mask.bitmap_indices[0] = -2;
  CHECK_THROWS(ErrorKind::invalid_value, "mask.bitmap_indices[0]", check_block_mask(mask.view));
  mask.bitmap_indices[0] = -1;
  mask.offsets[1] = -4;
  CHECK_THROWS(ErrorKind::invalid_value, "mask.offsets[0]: expected 0 to -4, got 0",
               check_block_mask(mask.view));
}

}  // namespace

int main() {
  for (int round = 0; round < 20; ++round) {
    for (const bool padded : {false, true}) {
      for (const bool bitmaps : {false, true}) test_garbage(padded, bitmaps);
    }
  }
  test_list_number();
  test_no_blocks();
  test_lowest_bits();
  test_check_block_mask();
  return failures() != 0;
}
