#pragma once

#include <algorithm>
#include <cstdint>

#include "bsr_gemm/problem.h"
#include "bsr_gemm/sm90/config.h"

namespace sparsek::bsr::sm90 {

/// KernelKey::inner: of the squares that blocks are cut into.
inline int inner_of(const BlockShape& block) {
  return static_cast<int>(std::min({block.rows, block.cols, std::int64_t{64}}));
}

/// Which kernel computes a product with one sparse operand: columns of its tiles, its stages, and
/// how many CTAs share a tile.
struct TileChoice {
  int cols;
  int stages;
  int split;
};

/// Stages that an SM has room for, by the columns of the tiles; those of 64 where it has one CTA,
/// or two.
constexpr int kStages256 = 4, kStages128 = 6, kStages64 = 8, kStages64OfTwo = 4;

/// For `groups` of 128 rows and KernelKey::inner. docs/bsr_gemm_sm90_measurements.md has what is
/// behind it.
TileChoice choose_tile(std::int64_t groups, std::int64_t cols, int inner, int num_sms);

/// Panels of 256 columns, and behind them narrower ones of kNarrowCols.
struct Panels {
  std::int64_t wide, narrow;
};
constexpr int kNarrowCols = 192;

/// For a result of whole panels of 256 columns: as many panels as CTAs take in the same number of
/// rounds of tiles, so that none is idle in the last one. Where a round is less than two panels all
/// are wide.
Panels choose_panels(std::int64_t groups, std::int64_t panels, int num_sms);

/// How many panels of 256 columns are walked abreast, log2: CTAs that take the same rows in them
/// read the same blocks, and less is read from memory.
int log2_abreast(const BsrMatrixView& matrix);

/// Whether the kernel for few columns (few_kernel.cuh) is the faster one, which reads the dense
/// rows anew for each block. `inner` as above, `density` that of the blocks, `dense` the dense
/// operand's.
bool few_columns_pay(std::int64_t rows, std::int64_t k, std::int64_t cols, int inner,
                     double density, Major dense, int num_sms);

}  // namespace sparsek::bsr::sm90
