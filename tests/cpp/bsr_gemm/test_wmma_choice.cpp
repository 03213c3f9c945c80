// What the wmma backend of bsr_gemm decides before a kernel runs, on devices that are not here.

#include <string>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/wmma/choice.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::bsr;

namespace {

DeviceInfo device(const char* name, int compute_capability, int smem_kilobytes) {
  DeviceInfo info;
  info.device = {DeviceType::cuda, 0};
  info.name = name;
  info.compute_capability = compute_capability;
  info.num_sms = 58;
  info.max_smem_per_block_bytes = smem_kilobytes * 1024;
  return info;
}
const DeviceInfo kDevices[] = {device("A100", 80, 163), device("L4", 89, 99),
                               device("H200", 90, 227), device("B200", 100, 227)};

Problem problem(Product product, std::int64_t rows, std::int64_t cols) {
  Problem p;
  p.product = product;
  p.m = p.n = p.k = 8192;
  if (product == Product::sparse_dense || product == Product::sparse_sparse) {
    p.a_block = {rows, cols};
  }
  if (product == Product::dense_sparse || product == Product::sparse_sparse) {
    p.b_block = {cols, rows};
  }
  if (product == Product::sampled) p.out_block = {rows, cols};
  p.a_access = {p.a_block.rows > 0 ? 2 : 1, 16};
  p.b_access = {p.b_block.rows > 0 ? 2 : 1, 16};
  p.out_access = {1, 16};
  p.device = kDevices[1];
  return p;
}

constexpr Product kProducts[] = {Product::sparse_dense, Product::dense_sparse,
                                 Product::sparse_sparse, Product::sampled};

const BsrGemmBackend& wmma_row() {
  for (const BsrGemmBackend& backend : backends()) {
    if (std::string(backend.name) == "wmma") return backend;
  }
  throw Error(ErrorKind::invalid_value, "no such backend");
}

/// The tiles cover the result, whatever the blocks and the chip.
void test_tiles_cover_the_result() {
  for (const DeviceInfo& info : kDevices) {
    for (const Product product : kProducts) {
      for (const int rows : {16, 32, 48, 64, 128, 256}) {
        for (const int cols : {16, 32, 48, 64, 128, 256}) {
          Problem p = problem(product, rows, cols);
          p.m = p.n = p.k = 768 * 16;
          p.device = info;
          CHECK(!wmma_row().supports(p).has_value(), rows, cols);
          const wmma::Choice c = wmma::choose(p, 10);
          CHECK(c.kernel != nullptr && c.kernel->smem_bytes <= info.max_smem_per_block_bytes);
          if (c.kernel == nullptr) continue;
          const wmma::Sides& s = c.sides;
          const std::int64_t rows_at_once = s.block_rows > 0 ? s.block_rows : s.rows;
          const std::int64_t cols_at_once = s.block_cols > 0 ? s.block_cols : s.cols;
          CHECK(c.row_parts * c.kernel->tile_rows >= rows_at_once, rows, cols);
          CHECK(c.col_parts * c.kernel->tile_cols >= cols_at_once, rows, cols);
          const std::int64_t tiles =
              product == Product::sampled
                  ? 10 * c.row_parts * c.col_parts
                  : s.rows / rows_at_once * c.row_parts * (s.cols / cols_at_once) * c.col_parts;
          CHECK_EQ(c.num_tiles, tiles, rows, cols);
        }
      }
    }
  }
}

/// The sparse operand is on the left, and a tile is no wider than its block needs.
void test_choice() {
  wmma::Choice c = wmma::choose(problem(Product::sparse_dense, 128, 128), 0);
  CHECK(!c.sides.transposed);
  CHECK_EQ(c.kernel->tile_rows, 128);
  CHECK(c.kernel->left == wmma::Major::k && c.kernel->right == wmma::Major::free);
  c = wmma::choose(problem(Product::dense_sparse, 128, 128), 0);
  CHECK(c.sides.transposed);
  CHECK(c.kernel->left == wmma::Major::free && c.kernel->right == wmma::Major::k);
  Problem p = problem(Product::sparse_dense, 128, 128);
  p.b_access = {0, 8};  // not aligned
  CHECK(wmma::choose(p, 0).kernel->left == wmma::Major::any);
  CHECK_EQ(wmma::choose(problem(Product::sparse_dense, 64, 64), 0).kernel->tile_rows, 64);
  CHECK_EQ(wmma::choose(problem(Product::sparse_dense, 16, 16), 0).kernel->tile_rows, 32);
  c = wmma::choose(problem(Product::sparse_sparse, 32, 32), 0);
  CHECK_EQ(c.kernel->tile_rows, 32);
  CHECK_EQ(c.kernel->tile_cols, 32);
  c = wmma::choose(problem(Product::sampled, 128, 32), 7000);
  CHECK(c.sides.transposed);  // high blocks
  CHECK_EQ(c.kernel->tile_rows, 32);
  CHECK_EQ(c.num_tiles, 7000);
  p = problem(Product::sparse_dense, 128, 128);
  CHECK_EQ(wmma::choose(p, 0).kernel->tile_k, 32);
  p.device = kDevices[2];  // more shared memory, deeper tiles
  CHECK_EQ(wmma::choose(p, 0).kernel->tile_k, 64);
}

/// A CTA multiplies several tiles where lists are short and there is work enough for all.
void test_runs() {
  const auto run_of = [](const Problem& p, std::int64_t nnz) {
    return wmma::choose_run(wmma::choose(p, 0), p, nnz);
  };
  Problem p = problem(Product::sparse_dense, 128, 128);
  p.device = kDevices[2];
  p.device.num_sms = 132;
  CHECK_EQ(run_of(p, 64 * 16), 4);  // of each row's 64 blocks 16
  CHECK_EQ(run_of(p, 64 * 32), 2);
  CHECK_EQ(run_of(p, 64 * 64), 1);
  CHECK_EQ(run_of(p, 0), 4);
  p.n = 256;  // a tile for each of 64 SMs
  CHECK_EQ(run_of(p, 64 * 16), 1);
  CHECK_EQ(run_of(problem(Product::dense_sparse, 128, 128), 64 * 16), 1);
  CHECK_EQ(run_of(problem(Product::sparse_sparse, 128, 128), 64 * 16), 1);
  CHECK_EQ(run_of(problem(Product::sampled, 128, 128), 64 * 16), 1);
}

void test_reasons() {
  const auto expect = [&](const Problem& p, const std::string& text) {
    const std::string got = wmma_row().supports(p).value_or("");
    CHECK(got.find(text) != std::string::npos, text, got);
  };
  expect(problem(Product::sparse_dense, 24, 16),
         "blocks of a are 24x16, expected multiples of 16 each way");
  expect(problem(Product::dense_sparse, 16, 8),
         "blocks of b are 8x16, expected multiples of 16 each way");
  expect(problem(Product::sampled, 16, 1), "blocks of out are 16x1");
  Problem p = problem(Product::sparse_dense, 16, 16);
  p.dtype = DType::float32;
  expect(p, "dtype is float32, expected float16 or bfloat16");
  p = problem(Product::sparse_dense, 16, 16);
  p.device = device("T4", 75, 64);
  expect(p, "T4 (sm_75), expected sm_80 or later");
  p.device = device("small", 99, 16);
  expect(p, "small has 16384 bytes of shared memory for a block, which no kernel fits");
  p = problem(Product::sparse_dense, 16, 16);
  p.m = p.n = std::int64_t{1} << 24;
  expect(p, "the result has ");
}

}  // namespace

int main() {
  test_tiles_cover_the_result();
  test_choice();
  test_runs();
  test_reasons();
  return failures() != 0;
}
