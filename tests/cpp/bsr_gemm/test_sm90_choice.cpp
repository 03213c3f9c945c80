// What the sm90 backend decides before a kernel runs: which problems it takes, and how many CTAs
// share a tile.

#include <algorithm>
#include <string>
#include <vector>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90/pair_rounds.h"
#include "bsr_gemm/sm90/products.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::bsr;

namespace {

Problem problem_of(Product product) {
  Problem p;
  p.product = product;
  p.m = p.n = p.k = 1024;
  p.device = {{DeviceType::cuda, 0}, "a Hopper GPU", 90, 132, 232448};
  p.a_access = p.b_access = p.out_access = {1, 16};
  const BlockShape block{32, 64};
  if (product == Product::sparse_dense || product == Product::sparse_sparse) {
    p.a_block = block;
    p.a_planned = true;
  }
  if (product == Product::dense_sparse || product == Product::sparse_sparse) {
    p.b_block = {block.cols, block.rows};
    p.b_planned = true;
  }
  if (product == Product::sampled) {
    p.out_block = block;
    p.out_planned = true;
  }
  return p;
}

std::string reason(const Problem& p) { return sm90::backend().supports(p).value_or("takes it"); }

void test_takes_all_products() {
  for (const Product product :
       {Product::sparse_dense, Product::dense_sparse, Product::sparse_sparse, Product::sampled}) {
    CHECK_EQ(reason(problem_of(product)), "takes it");
  }
}

void test_declines_with_the_reason() {
  Problem p = problem_of(Product::sampled);
  p.out_planned = false;
  CHECK_EQ(reason(p), "out has no plan (make_bsr_plan)");
  p = problem_of(Product::sparse_sparse);
  p.b_block.cols = 48;
  CHECK_EQ(reason(p), "b has blocks of 64x48, expected 16, 32, 64 or 128 each way");
  p = problem_of(Product::sparse_dense);
  p.out_access.alignment = 2;  // stores need not be of 16 bytes
  CHECK_EQ(reason(p), "takes it");
}

/// All CTAs of a launch with shared tiles have an SM, and there are not twice as many.
void test_shared_tiles_fill_the_chip() {
  for (const int sms : {78, 114, 132}) {
    for (std::int64_t tiles = 1; tiles < 1000; ++tiles) {
      const int split = sm90::split_of(tiles, sms);
      CHECK(split >= 1 && split <= 8 && (split & (split - 1)) == 0);
      CHECK(split == 1 || tiles * split <= sms);
      CHECK(split == 8 || tiles * 2 * split > sms);
    }
  }
}

/// The CTAs of a product of two sparse operands take every tile once, and the later ones no more
/// than the earlier ones.
void test_rounds_cover_the_tiles() {
  for (const std::int32_t slots : {1, 2, 264}) {
    for (const std::int32_t tiles : {1, 2, 3, 100, 263, 264, 265, 527, 1000, 4096, 20000}) {
      std::vector<int> taken(static_cast<std::size_t>(tiles));
      std::int32_t most = tiles;
      for (std::int32_t cta = 0; cta < sm90::PairRounds::num_ctas(tiles, slots); ++cta) {
        const auto rounds = sm90::PairRounds::of(cta, tiles, slots);
        CHECK(rounds.count >= 1 && rounds.count <= most);
        most = rounds.count;
        for (std::int32_t i = 0; i < rounds.count; ++i) {
          const std::int32_t tile = rounds.first + i * rounds.step;
          CHECK(tile >= 0 && tile < tiles);
          ++taken[static_cast<std::size_t>(tile)];
        }
      }
      CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
      CHECK_EQ(most, 1);
    }
  }
}

}  // namespace

int main() {
  test_takes_all_products();
  test_declines_with_the_reason();
  test_shared_tiles_fill_the_chip();
  test_rounds_cover_the_tiles();
  return failures() != 0;
}
