#include "bsr_gemm/sm90_dense/choice.h"

#include <algorithm>

#include "core/integers.h"
#include "core/message.h"
#include "core/workspace.h"

namespace sparsek::bsr::sm90_dense {
namespace {

// Measured at 8192^3, float16 (docs/bsr_gemm_sm90.md): from 32 rows on skipping is as fast even
// where no block is absent.
constexpr double kNever = 2;
constexpr struct {
  std::int64_t block_rows;
  double density;
} kCrossovers[] = {{16, 0.6}, {32, kNever}};

// Columns of a dense operand on the right, rows of one on the left: they share what the copy costs.
constexpr std::int64_t kLeastExtent = 4096;

}  // namespace

Tile choose_tile(std::int64_t m, std::int64_t n, int num_sms) {
  // Every SM computes one tile at a time. A large one is four small ones and takes 2.4 times as
  // long.
  const std::int64_t large = ceil_div(ceil_div(m, 128) * ceil_div(n, 256), num_sms);
  const std::int64_t small = ceil_div(ceil_div(m, 64) * ceil_div(n, 128), num_sms);
  return 12 * large <= 5 * small ? Tile::large : Tile::small;
}

double dense_pays_from(std::int64_t block_rows) {
  double density = kNever;
  for (const auto& crossover : kCrossovers) {
    if (block_rows >= crossover.block_rows) density = crossover.density;
  }
  return density;
}

Reason why_not_faster(const Problem& p) {
  if (p.product == Product::dense) return std::nullopt;
  if (p.product == Product::sparse_sparse) return "both operands are sparse: blocks are skipped";
  const bool left = p.product == Product::sparse_dense;
  const double density = left ? p.a_density : p.b_density;
  const std::int64_t block_rows = left ? p.a_block.rows : p.b_block.cols;
  const double least = dense_pays_from(block_rows);
  if (least > 1) {
    return cat("blocks have ", block_rows, left ? " rows" : " columns",
               ": a dense copy pays at no density");
  }
  if (density < least) {
    return cat("the density of ", left ? "a" : "b", " is ", density, ", below the ", least,
               " from where on a dense copy pays");
  }
  const std::int64_t free = left ? p.n : p.m;
  if (free < kLeastExtent) {
    return cat(left ? "n" : "m", " is ", free, ", below the ", kLeastExtent,
               " from where on a dense copy pays");
  }
  return std::nullopt;
}

std::size_t copy_bytes(const BlockShape& block, std::int64_t rows, std::int64_t cols) {
  if (block.rows == 0) return 0;
  return aligned(2 * static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
}

}  // namespace sparsek::bsr::sm90_dense
