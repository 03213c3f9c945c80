// How the kernel behind the fused ones cuts the weights into CTAs, and the workspace that it takes.

#include <cstddef>
#include <string>

#include "attention/backends.h"
#include "attention/weights/config.h"
#include "attention/weights/cut.h"
#include "attention/weights/weights.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

Problem problem(std::int64_t heads, std::int64_t q_len, std::int64_t kv_len,
                std::int64_t head_dim) {
  Problem p;
  p.batch = 2;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.num_q_heads = p.num_kv_heads = heads;
  p.head_dim = p.value_dim = head_dim;
  p.device.device = {DeviceType::cuda, 0};
  p.device.compute_capability = 90;
  p.device.num_sms = 132;
  p.device.max_smem_per_block_bytes = 227 * 1024;
  p.scale = 1;
  p.band = make_band(q_len, kv_len, false, std::nullopt, std::nullopt);
  p.wants_weights = true;
  return p;
}

/// The parts cover the keys, none is empty, and there are no more than two rounds take.
void test_parts_cover_the_keys() {
  for (const std::int64_t head_dim : {1, 64, 65, 128, 129, 256}) {
    for (const std::int64_t q_len : {1, 127, 128, 129, 5000}) {
      for (const std::int64_t kv_len : {1, 63, 64, 65, 1000, 100001}) {
        const weights::Cut cut = weights::cut_of(problem(3, q_len, kv_len, head_dim));
        CHECK(cut.head_dim >= head_dim, head_dim);
        CHECK_EQ(cut.num_q_tiles, (q_len + cut.tile_q - 1) / cut.tile_q, head_dim, q_len);
        CHECK_EQ(cut.num_tiles, 6 * cut.num_q_tiles);
        CHECK_EQ(cut.keys_in_part % weights::kTileKv, 0);
        CHECK(cut.num_parts * cut.keys_in_part >= kv_len, q_len, kv_len);
        CHECK((cut.num_parts - 1) * cut.keys_in_part < kv_len, q_len, kv_len);
        CHECK((cut.num_parts - 1) * cut.num_tiles < 2 * 132 * cut.ctas_per_sm, q_len, kv_len);
      }
    }
  }
  CHECK(weights::cut_of(problem(1, 1, 100001, 64)).num_parts > 100);
}

/// A q tile follows one list; a q block longer than all queries makes no more tiles than there are.
void test_tiles_stay_in_their_q_block() {
  Problem p = problem(4, 1000, 1000, 64);
  p.has_mask = true;
  p.kv_block = 64;
  for (const std::int64_t q_block : {1, 64, 128, 200, 1000}) {
    p.q_block = q_block;
    const weights::Cut cut = weights::cut_of(p);
    CHECK_EQ(cut.tiles_in_block, (q_block + cut.tile_q - 1) / cut.tile_q, q_block);
    CHECK_EQ(cut.num_q_tiles, (1000 + q_block - 1) / q_block * cut.tiles_in_block, q_block);
  }
  p.q_block = std::int64_t{1} << 40;
  CHECK_EQ(weights::cut_of(p).num_q_tiles, 8);
}

void test_nothing_to_do() {
  CHECK_EQ(weights::cut_of(problem(3, 0, 10, 64)).num_tiles, 0);
  CHECK_EQ(weights::cut_of(problem(0, 10, 10, 64)).num_tiles, 0);
  CHECK_EQ(weights::cut_of(problem(3, 10, 0, 64)).num_parts, 1);
}

/// O(queries), and nothing where no weights are wanted.
void test_workspace() {
  Problem p = problem(16, 4096, 4096, 64);
  const std::size_t rows = 2 * 16 * 4096 * sizeof(float);
  CHECK_EQ(workspace_bytes_with_weights(p, 1000), 1024 + 2 * rows);
  p.wants_lse = true;
  CHECK_EQ(workspace_bytes_with_weights(p, 0), rows);
  p.wants_weights = false;
  CHECK_EQ(workspace_bytes_with_weights(p, 1000), std::size_t{1000});
}

/// On Hopper both fused backends give them.
void test_who_gives_weights() {
  std::string takers;
  for (const AttentionBackend& backend : backends()) {
    if (!backend.supports(problem(16, 1000, 1000, 64))) takers += std::string(backend.name) + " ";
  }
  CHECK(takers.find("sm90 wmma ") == 0, takers);
}

}  // namespace

int main() {
  test_parts_cover_the_keys();
  test_tiles_stay_in_their_q_block();
  test_nothing_to_do();
  test_workspace();
  test_who_gives_weights();
  return failures() != 0;
}
