// The tiles of products of two dense operands: how lists are cut, and which tiles CTAs share.

#include <cstddef>
#include <cstdint>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/sampled_cut.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::bsr;

namespace {

/// Each unit of a group lies in one tile, and only the last one is narrower than others.
void test_sampled_tiles_cover_the_units() {
  for (int most = 1; most <= sm90::kMostSampledUnits; ++most) {
    const sm90::SampledCut cut{most};
    for (std::int32_t units = 0; units < 100; ++units) {
      std::int32_t done = 0;
      for (int width = most; width > 0; --width) {
        for (std::int32_t index = 0; index < cut.tiles(units, width); ++index) {
          CHECK_EQ(cut.first(units, width, index), done, most, units);
          done += width;
        }
      }
      CHECK_EQ(done, units, most);
    }
  }
}

/// So many tiles of three units, of two and of one on 132 SMs.
sm90::SampledRounds rounds_of(std::int32_t threes, std::int32_t twos, std::int32_t ones,
                              std::int32_t most_parts = 1) {
  sm90::SampledRounds rounds{132, 128, most_parts, 64, 64};
  rounds.add(threes, 3);
  rounds.add(twos, 2);
  rounds.add(ones, 1);
  return rounds;
}

std::int64_t cost(std::int32_t threes, std::int32_t twos, std::int32_t ones) {
  return rounds_of(threes, twos, ones).cost();
}

void test_sampled_rounds_take_as_long_as_their_widest_tile() {
  CHECK_EQ(cost(0, 0, 0), 0);
  CHECK_EQ(cost(1, 100, 31), 128 * 13);
  CHECK_EQ(cost(132, 1, 100), 128 * (13 + 9));
  CHECK_EQ(cost(133, 100, 100), 128 * (13 + 13 + 5));
  CHECK(cost(128, 0, 0) < cost(0, 192, 0));   // 64 groups of 6 units
  CHECK(cost(64, 0, 0) > cost(0, 64, 64));    // of 3
  CHECK(cost(192, 0, 0) > cost(0, 256, 64));  // of 9
}

/// CTAs share tiles that leave half of them idle, if what that saves is more than the sums take,
/// and not what memory takes in any case.
void test_few_sampled_tiles_are_shared() {
  CHECK_EQ(sm90::SampledRounds::most_parts_of(1), 1);
  CHECK_EQ(sm90::SampledRounds::most_parts_of(31), 1);
  CHECK_EQ(sm90::SampledRounds::most_parts_of(32), 4);
  CHECK_EQ(sm90::SampledRounds::most_parts_of(128), 16);
  for (const std::int32_t most_parts : {1, 2, 4, 16}) {
    for (std::int32_t ones = 0; ones < 300; ++ones) {
      const sm90::SampledRounds rounds = rounds_of(10, 10, ones, most_parts);
      CHECK(rounds.parts() == 1 || rounds.tiles * rounds.parts() <= 132);
      CHECK(rounds.parts() <= most_parts);
      CHECK(rounds.cost() <= rounds_of(10, 10, ones).cost());
    }
  }
  CHECK_EQ(rounds_of(0, 0, 4, 16).parts(), 16);
  CHECK_EQ(rounds_of(0, 0, 28, 16).parts(), 4);
  CHECK_EQ(rounds_of(0, 0, 28, 3).parts(), 3);
  CHECK_EQ(rounds_of(0, 0, 64, 16).parts(), 1);  // 128 units to read
  CHECK_EQ(rounds_of(0, 0, 67, 16).parts(), 1);
}

/// The host knows how many blocks there are, not in which rows.
void test_shared_tiles_need_a_workspace() {
  Problem p;
  p.product = Product::sampled;
  p.out_block = {128, 128};
  p.device = {{DeviceType::cuda, 0}, "a Hopper GPU", 90, 132, 232448};
  const auto bytes = [&](std::int64_t side, std::int64_t k, std::int64_t blocks) {
    p.m = p.n = side;
    p.k = k;
    p.out_blocks = blocks;
    p.workspace_offered = true;
    return sm90::backend().workspace_bytes(p);
  };
  constexpr std::size_t kAll = std::size_t{132} * 128 * 384 * sizeof(float);
  CHECK_EQ(bytes(2048, 8192, 28), kAll);
  CHECK_EQ(bytes(2048, 1024, 28), 0U);
  CHECK_EQ(bytes(1024, 2048, 1000), 0U);  // 64 tiles whatever the blocks are
  CHECK_EQ(bytes(512, 2048, 200), kAll);
  CHECK_EQ(bytes(8192, 8192, 128), 0U);
  CHECK_EQ(bytes(8192, 8192, 192), kAll);  // 64 of three units
  CHECK_EQ(bytes(8192, 8192, 424), 0U);
  p.out_blocks = 28;
  p.workspace_offered = false;
  CHECK_EQ(sm90::backend().workspace_bytes(p), 0U);
}

}  // namespace

int main() {
  test_sampled_tiles_cover_the_units();
  test_sampled_rounds_take_as_long_as_their_widest_tile();
  test_few_sampled_tiles_are_shared();
  test_shared_tiles_need_a_workspace();
  return failures() != 0;
}
