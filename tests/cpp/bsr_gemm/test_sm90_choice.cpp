// What the sm90 backend decides before a kernel runs: which problems it takes, how many CTAs share
// a tile, and which part of the lists each takes.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90/few_config.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/stretches.h"
#include "bsr_gemm/sm90/tile_choice.h"
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

/// Nothing to compute, of which backends are asked all the same.
void test_no_elements() {
  for (const Product product : {Product::sparse_dense, Product::dense_sparse,
                                Product::sparse_sparse, Product::sampled, Product::dense}) {
    for (std::int64_t Problem::* side : {&Problem::m, &Problem::n, &Problem::k}) {
      Problem p = problem_of(product);
      p.*side = 0;
      p.workspace_offered = true;
      for (const BsrGemmBackend& backend : backends()) {
        if (!backend.supports(p)) CHECK(backend.workspace_bytes(p) < 100 << 20, backend.name);
      }
    }
  }
}

void test_declines_with_the_reason() {
  Problem p = problem_of(Product::sampled);
  p.out_planned = false;
  CHECK_EQ(reason(p), "out has no plan (make_bsr_plan)");
  p = problem_of(Product::sparse_sparse);
  p.b_block.cols = 48;
  CHECK_EQ(reason(p), "b has blocks of 64x48, expected 16, 32, 64 or 128 each way");
  p = problem_of(Product::dense_sparse);
  p.b_access.bytes = (std::int64_t{64} << 30) + 1;
  CHECK_EQ(reason(p), "takes it");
  p.b_block.rows = 16;
  CHECK_EQ(reason(p),
           "b has values that span 68719476737 bytes, expected no more than 64 GiB with blocks of "
           "16");
  --p.b_access.bytes;
  CHECK_EQ(reason(p), "takes it");
  p = problem_of(Product::sparse_dense);
  p.out_access.alignment = 2;  // stores need not be of 16 bytes
  CHECK_EQ(reason(p), "takes it");
}

std::string tile(std::int64_t rows, std::int64_t cols, int inner = 64) {
  const sm90::TileChoice choice = sm90::choose_tile((rows + 127) / 128, cols, inner, 132);
  return std::to_string(choice.cols) + " x" + std::to_string(choice.stages) + " /" +
         std::to_string(choice.split);
}

void test_tiles_are_as_wide_as_fill_the_chip() {
  CHECK_EQ(tile(8192, 1), "64 x8 /2");
  CHECK_EQ(tile(8192, 64), "64 x8 /2");
  CHECK_EQ(tile(8192, 65), "128 x6 /2");
  CHECK_EQ(tile(8192, 128), "128 x6 /2");
  CHECK_EQ(tile(8192, 256), "128 x6 /1");
  CHECK_EQ(tile(8192, 320), "128 x6 /1");
  CHECK_EQ(tile(8192, 320, 16), "256 x4 /1");
  CHECK_EQ(tile(8192, 512), "256 x4 /1");
  CHECK_EQ(tile(8192, 8192), "256 x4 /1");
  CHECK_EQ(tile(1024, 64), "64 x4 /8");
  CHECK_EQ(tile(1024, 512), "64 x8 /2");
  CHECK_EQ(tile(65536, 16), "64 x4 /1");  // two CTAs on an SM
  CHECK_EQ(tile(65536, 128), "128 x6 /1");
  CHECK_EQ(tile(65536, 256), "256 x4 /1");
}

/// All CTAs of a launch with shared tiles have an SM, and there are not twice as many.
void test_shared_tiles_fill_the_chip() {
  for (const int sms : {78, 114, 132}) {
    for (std::int64_t groups = 1; groups < 300; ++groups) {
      for (const std::int64_t cols : {1, 64, 65, 128, 129, 200, 256, 300, 512, 1000, 4096}) {
        const sm90::TileChoice choice = sm90::choose_tile(groups, cols, 32, sms);
        const std::int64_t tiles = groups * ((cols + choice.cols - 1) / choice.cols);
        const int split = choice.split, most = choice.stages > 4 ? 2 : 8;
        CHECK(split >= 1 && split <= most && (split & (split - 1)) == 0);
        CHECK(split == 1 || tiles * split <= sms);
        CHECK(choice.cols == 256 || split == most || tiles * 2 * split > sms);
        CHECK(choice.cols == 64 || cols > choice.cols / 2);
      }
    }
  }
}

/// All columns, once, and no round of tiles more.
void test_narrow_panels_fill_the_last_round() {
  for (const int sms : {78, 114, 132}) {
    for (std::int64_t groups = 1; groups < 300; ++groups) {
      for (std::int64_t panels = 1; panels < 100; ++panels) {
        const sm90::Panels chosen = sm90::choose_panels(groups, panels, sms);
        CHECK(chosen.wide >= 0 && chosen.narrow >= 0);
        CHECK_EQ(256 * chosen.wide + sm90::kNarrowCols * chosen.narrow, 256 * panels);
        const auto rounds = [&](std::int64_t n) { return (groups * n + sms - 1) / sms; };
        CHECK_EQ(rounds(chosen.wide + chosen.narrow), rounds(panels));
        CHECK(2 * groups <= sms || chosen.narrow == 0);
      }
    }
  }
  const sm90::Panels chosen = sm90::choose_panels(64, 32, 132);
  CHECK(chosen.wide == 29 && chosen.narrow == 4);  // 2112 tiles, 16 for each SM
}

bool few(std::int64_t rows, std::int64_t cols, int inner = 64, double density = 0.1,
         sm90::Major dense = sm90::Major::free) {
  return sm90::few_columns_pay(rows, 8192, cols, inner, density, dense, 132);
}

void test_few_columns_where_they_pay() {
  CHECK(few(8192, 1) && few(8192, 256) && !few(8192, 257));
  CHECK(few(3200, 64) && !few(3136, 64));      // rows for 50 of 66 clusters
  CHECK(few(135168, 64) && !few(135232, 64));  // 32 tiles for each
  CHECK(few(8192, 256, 64, 0.25) && !few(8192, 256, 64, 0.5) && few(8192, 64, 64, 1.0));
  CHECK(few(8192, 256, 32) && !few(8192, 256, 32, 0.25));
  CHECK(few(8192, 64, 16, 0.25) && few(8192, 256, 16) && !few(16384, 256, 16));
  CHECK(few(8192, 128, 16, 0.25) && !few(8192, 256, 16, 0.25));
  CHECK(few(8192, 64, 16, 0.5) && !few(8192, 48, 16, 0.5) && !few(8192, 128, 16, 0.5));
  CHECK(!few(8192, 64, 16, 0.75));
  const auto by_k = [](std::int64_t cols, double density) {
    return few(8192, cols, 16, density, sm90::Major::k);
  };
  CHECK(by_k(64, 0.1) && !by_k(128, 0.1) && by_k(16, 0.5) && !by_k(64, 0.25));
  CHECK(few(8192, 256, 32, 0.1, sm90::Major::k));
}

int abreast(std::int64_t rows, std::int64_t cols, std::int64_t block, double density) {
  BsrMatrixView m;
  m.rows = rows;
  m.cols = cols;
  const auto blocks = static_cast<std::int64_t>(density * static_cast<double>(rows / block) *
                                                static_cast<double>(cols / block));
  m.values =
      contiguous_view(nullptr, DType::float16, {DeviceType::cuda, 0}, {blocks, block, block});
  return 1 << sm90::log2_abreast(m);
}

void test_panels_abreast_where_blocks_do_not_stay() {
  for (const std::int64_t block : {16, 32, 64, 128}) {
    CHECK_EQ(abreast(8192, 8192, block, 0.25), 4);
    CHECK_EQ(abreast(8192, 8192, block, 0.1), block >= 64 ? 2 : 1);
    CHECK_EQ(abreast(16384, 16384, block, 0.1), 2);
    CHECK_EQ(abreast(65536, 8192, block, 0.02), 1);
    CHECK_EQ(abreast(8192, 8192, block, 0), 1);
    CHECK_EQ(abreast(0, 0, block, 0), 1);
  }
}

template <int kSide, int kGroupCols = 64>
void check_few_layouts() {
  using C = sm90::FewConfig<std::uint16_t, sm90::Major::k, sm90::Major::k, kSide, kGroupCols>;
  for (int groups = 1; groups <= C::kMostGroups; ++groups) {
    for (const bool apart : {false, true}) {
      const sm90::FewLayout<C> layout{groups, apart};
      CHECK(layout.bytes() <= 232448);  // of a CTA on Hopper
      CHECK(layout.stages() >= 3 && layout.stages() <= C::kMostStages);
      CHECK_EQ(layout.stages() % C::turns(groups), 0);
    }
  }
}

void test_few_columns_fit_in_shared_memory() {
  check_few_layouts<16>();
  check_few_layouts<32>();
  check_few_layouts<64>();
  check_few_layouts<64, 128>();
}

/// A stretch takes what follows the one before it, in whole K tiles; whoever begins a list knows
/// how many others add to it, and nobody has more than a share and what was rounded.
void test_stretches_cover_the_lists() {
  std::mt19937 random(7);
  for (const int log2_block_k : {4, 5, 6, 7}) {
    for (const std::int32_t groups : {1, 2, 40, 300}) {
      for (const std::int32_t panels : {1, 3, 32}) {
        std::vector<std::int64_t> begins{0};
        for (std::int32_t i = 0; i < groups; ++i) {
          const int length = random() % 8 == 0 ? random() % 2000 : random() % 3;
          begins.push_back(begins.back() + length);
        }
        const std::int32_t workers = std::min(132, groups * panels);
        const sm90::Stretches s{begins.data(), groups, panels, workers, log2_block_k};
        const std::int64_t fixed = sm90::Stretches::fixed(log2_block_k);
        const std::int64_t share = s.of_panel() * panels / workers;
        const std::int64_t step = std::max(1, 64 >> log2_block_k), least = 512 >> log2_block_k;
        sm90::Place at = s.begin(0);
        CHECK(at.panel == 0 && at.group == 0 && at.entry == 0);
        std::vector<std::int64_t> taken(static_cast<std::size_t>(groups) * panels);
        std::int32_t owed = 0;  // stretches that the last list's first one waits for
        for (std::int32_t stretch = 0; stretch < workers; ++stretch) {
          const sm90::Place end = s.begin(stretch + 1);
          if (at.entry > 0) {
            CHECK(owed > 0);
            --owed;
          }
          std::int64_t work = 0;
          while (at.panel != end.panel || at.group != end.group || at.entry != end.entry) {
            CHECK(at.panel < panels && at.group < groups && at.entry % step == 0);
            const bool inside = at.panel == end.panel && at.group == end.group;
            const std::int64_t length = begins[static_cast<std::size_t>(at.group) + 1] -
                                        begins[static_cast<std::size_t>(at.group)];
            const std::int64_t entries = (inside ? end.entry : length) - at.entry;
            CHECK(entries > 0 || length == 0);
            taken[static_cast<std::size_t>(at.panel) * groups + at.group] += entries;
            work += entries + fixed;
            if (at.entry == 0) {
              CHECK_EQ(owed, 0);
              if (inside) owed = s.count_inside(at, stretch + 1);
              CHECK((owed > 0) == inside);
            }
            if (inside) {
              at = end;
            } else {
              s.next(&at);
            }
          }
          CHECK(work <= share + 2 * (least + step + fixed));
        }
        CHECK(at.panel == panels && owed == 0);
        for (std::size_t i = 0; i < taken.size(); ++i) {
          const std::size_t group = i % static_cast<std::size_t>(groups);
          CHECK_EQ(taken[i], begins[group + 1] - begins[group]);
        }
      }
    }
  }
}

/// Of two sparse operands CTAs take tiles as they get ready, where there are more than the chip
/// holds and a CTA can compute several.
void test_room_for_the_next_tile() {
  Problem p = problem_of(Product::sparse_sparse);
  p.a_block = {128, 64};
  p.b_block = {64, 128};
  p.a_access.axis = p.b_access.axis = 2;
  p.m = p.n = 16 * 128;
  CHECK_EQ(sm90::bytes_of_next_tile(p), 0u);  // 256 tiles
  p.n = 17 * 128;
  CHECK(sm90::bytes_of_next_tile(p) > 0);
  CHECK_EQ(sm90::backend().workspace_bytes(p), 0u);  // the caller offers none
  p.workspace_offered = true;
  CHECK_EQ(sm90::backend().workspace_bytes(p), sm90::bytes_of_next_tile(p));
  Problem other = p;
  other.out_dtype = DType::float32;
  CHECK_EQ(sm90::bytes_of_next_tile(other), 0u);
  other = p;
  other.a_block = {32, 64};
  CHECK_EQ(sm90::bytes_of_next_tile(other), 0u);
  other = p;
  other.out_access.axis = 0;  // columns contiguous, which is the way the kernel does not store
  CHECK_EQ(sm90::bytes_of_next_tile(other), 0u);
}

/// Memory for shared sums is asked for where one row can be longer than a CTA's share of all.
void test_room_for_long_rows() {
  Problem p = problem_of(Product::sparse_dense);
  p.a_block = {128, 128};
  p.m = p.n = p.k = 8192;
  p.a_density = 0.1;
  CHECK_EQ(sm90::bytes_of_sums(p), 0u);  // equal or not, no tile has a CTA's share
  p.a_density = 0.02;
  CHECK(sm90::bytes_of_sums(p) >= 132u * 128 * 256 * 4);
  CHECK_EQ(sm90::backend().workspace_bytes(p), 0u);  // the caller offers none
  p.workspace_offered = true;
  CHECK_EQ(sm90::backend().workspace_bytes(p), sm90::bytes_of_sums(p));
  p.n = 256;
  CHECK_EQ(sm90::bytes_of_sums(p), 0u);  // clusters share the lists
  p = problem_of(Product::dense_sparse);
  p.b_block = {16, 16};
  p.m = 1000;
  p.n = p.k = 5120;
  p.b_density = 0.02;
  CHECK(sm90::bytes_of_sums(p) > 0);
}

}  // namespace

int main() {
  test_takes_all_products();
  test_no_elements();
  test_declines_with_the_reason();
  test_tiles_are_as_wide_as_fill_the_chip();
  test_shared_tiles_fill_the_chip();
  test_panels_abreast_where_blocks_do_not_stay();
  test_narrow_panels_fill_the_last_round();
  test_few_columns_where_they_pay();
  test_few_columns_fit_in_shared_memory();
  test_stretches_cover_the_lists();
  test_room_for_long_rows();
  test_room_for_the_next_tile();
  return failures() != 0;
}
