#include "bsr_gemm/wmma/choice.h"

#include <algorithm>
#include <utility>

#include "core/integers.h"
#include "core/message.h"

namespace sparsek::bsr::wmma {
namespace {

template <class C, Major kLeft = Major::any, Major kRight = Major::any,
          int kMostSmem = kLeastSmemBytes>
constexpr Kernel row(double cost) {
  static_assert(smem_bytes_of<C>() <= kMostSmem);
  return {C::kTileRows,       C::kTileCols,  C::kTileK, kLeft, kRight,
          smem_bytes_of<C>(), C::kCtasPerSm, C::kRuns,  cost,  &launch<C, kLeft, kRight>};
}

// Those of known axes are for row-major operands: of BSR x dense, and of dense x BSR, which is
// multiplied transposed.
constexpr Kernel kKernels[] = {
    row<Tile128x256Deep, Major::k, Major::free, kHopperSmemBytes>(1.0),
    row<Tile128x256Deep, Major::free, Major::k, kHopperSmemBytes>(1.0),
    row<Tile128x256, Major::k, Major::free>(1.35),
    row<Tile128x256, Major::free, Major::k>(1.35),
    row<Tile128x128, Major::k, Major::free>(1.23),
    row<Tile128x128, Major::free, Major::k>(1.23),
    row<Tile128x128Flat>(1.95),
    row<Tile64x256, Major::k, Major::free>(1.4),
    row<Tile64x256, Major::free, Major::k>(1.4),
    row<Tile64x128>(2.0),
    row<Tile32x128>(2.6),
    row<Tile32x32>(4.9),
};

// A CTA of four warps that has an SM for itself leaves its sub-cores with one warp each.
constexpr double kAlone = 1.4;

// What a CTA's begin and end cost, as so much of k.
constexpr std::int64_t kStartK = 350;

/// An SM has 1 KB more than what a block may use, and a CTA takes 1 KB besides its own.
int ctas_that_fit(const Kernel& kernel, const DeviceInfo& device) {
  const int fit = (device.max_smem_per_block_bytes + 1024) / (kernel.smem_bytes + 1024);
  return std::max(1, std::min(kernel.ctas_per_sm, fit));
}

/// Of an operand whose axis `free_axis` (0: rows) is not k.
Major major_of(const Access& access, bool sparse, int free_axis) {
  if (access.axis < 0 || access.alignment < 16) return Major::any;
  return access.axis - (sparse ? 1 : 0) == free_axis ? Major::free : Major::k;
}

Sides sides_of(const Problem& p) {
  Sides s{false, p.m, p.n, p.a_block.rows, p.b_block.cols};
  if (p.product == Product::sampled) {
    s.block_rows = p.out_block.rows;
    s.block_cols = p.out_block.cols;
    s.transposed = s.block_rows > s.block_cols;  // the wide side of a tile is that of the columns
  }
  if (p.product == Product::dense_sparse) s.transposed = true;
  s.left = major_of(p.a_access, p.a_block.rows > 0, 0);
  s.right = major_of(p.b_access, p.b_block.rows > 0, 1);
  if (s.transposed) {
    std::swap(s.left, s.right);
    std::swap(s.rows, s.cols);
    std::swap(s.block_rows, s.block_cols);
  }
  return s;
}

}  // namespace

Choice choose(const Problem& p, std::int64_t nnz) {
  Choice best;
  double best_time = 0;
  const Sides s = sides_of(p);
  for (const Kernel& kernel : kKernels) {
    if (kernel.smem_bytes > p.device.max_smem_per_block_bytes) continue;
    if (kernel.left != Major::any && (kernel.left != s.left || kernel.right != s.right)) continue;
    Choice choice{&kernel, s};
    const std::int64_t rows = s.block_rows > 0 ? s.block_rows : s.rows;
    const std::int64_t cols = s.block_cols > 0 ? s.block_cols : s.cols;
    choice.row_parts = ceil_div(rows, kernel.tile_rows);
    choice.col_parts = ceil_div(cols, kernel.tile_cols);
    choice.row_tiles = choice.row_parts * (s.block_rows > 0 ? s.rows / s.block_rows : 1);
    const std::int64_t col_tiles =
        choice.col_parts * (s.block_cols > 0 ? s.cols / s.block_cols : 1);
    choice.num_tiles = p.product == Product::sampled ? nnz * choice.row_parts * choice.col_parts
                                                     : choice.row_tiles * col_tiles;
    // Rounds of the chip's CTAs, each as long as its tile is large, whatever of it is wasted.
    const int ctas_per_sm = ctas_that_fit(kernel, p.device);
    const std::int64_t at_once = std::int64_t{std::max(1, p.device.num_sms)} * ctas_per_sm;
    const double time = static_cast<double>(ceil_div(choice.num_tiles, at_once)) * ctas_per_sm *
                        kernel.tile_rows * kernel.tile_cols * kernel.cost *
                        (ctas_per_sm < kernel.ctas_per_sm ? kAlone : 1.0);
    if (best.kernel == nullptr || time < best_time) {
      best = choice;
      best_time = time;
    }
  }
  return best;
}

std::int32_t choose_run(const Choice& choice, const Problem& p, std::int64_t nnz) {
  const Sides& s = choice.sides;
  // Not of columns' lists, whose lengths no CTA knows before it has read them.
  if (!choice.kernel->runs || p.product != Product::sparse_dense) return 1;
  const std::int64_t length = ceil_div(nnz, std::max<std::int64_t>(1, s.rows / s.block_rows));
  const std::int64_t col_tiles = choice.num_tiles / std::max<std::int64_t>(1, choice.row_tiles);
  const std::int64_t at_once =
      std::int64_t{std::max(1, p.device.num_sms)} * ctas_that_fit(*choice.kernel, p.device);
  std::int32_t best = 1;
  std::int64_t best_time = 0;
  for (std::int32_t run = 1; run <= kMostRun; run *= 2) {
    const std::int64_t k = run * length * p.a_block.cols;
    if (run > 1 && k > kRunK) break;
    const std::int64_t rounds = ceil_div(choice.row_tiles * ceil_div(col_tiles, run), at_once);
    const std::int64_t time = rounds * (k + kStartK);
    if (run == 1 || time < best_time) {
      best = run;
      best_time = time;
    }
  }
  return best;
}

std::string to_string(const Choice& choice) {
  const Kernel& k = *choice.kernel;
  return cat("tile=", k.tile_rows, "x", k.tile_cols, "x", k.tile_k, " smem=", k.smem_bytes,
             choice.sides.transposed ? " transposed" : "", " tiles=", choice.num_tiles,
             " run=", choice.run);
}

}  // namespace sparsek::bsr::wmma
