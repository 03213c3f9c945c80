#include "bsr_gemm/sm90/tile_choice.h"

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/few_config.h"
#include "core/integers.h"

namespace sparsek::bsr::sm90 {
namespace {

/// As many CTAs as leave each an SM of its own, a power of two.
int split_of(std::int64_t tiles, int most, int num_sms) {
  int split = 1;
  while (2 * split <= most && tiles * 2 * split <= num_sms) split *= 2;
  return split;
}

}  // namespace

TileChoice choose_tile(std::int64_t groups, std::int64_t cols, int inner, int num_sms) {
  const auto tiles = [&](int tile_cols) { return groups * ceil_div(cols, tile_cols); };
  if (cols > 128) {
    // Tiles of 256 columns for all that has enough of them: they read the blocks least often, which
    // tells most for those of 16.
    const std::int64_t sms_times_2 = (inner == 16 ? 2 : 3) * std::int64_t{num_sms};
    if (2 * tiles(128) > sms_times_2) return {256, kStages256, 1};
  }
  if (cols > 64) {
    const int split = split_of(tiles(128), kMostPartsDeep, num_sms);
    if (2 * tiles(128) * split > num_sms) return {128, kStages128, split};
  }
  const int split = split_of(tiles(64), kMostParts, num_sms);
  const bool deep = tiles(64) * split <= num_sms && split <= kMostPartsDeep;
  return {64, deep ? kStages64 : kStages64OfTwo, split};
}

bool few_columns_pay(std::int64_t rows, std::int64_t k, std::int64_t cols, int inner,
                     double density, int num_sms) {
  if (cols > kFewMostCols || !few_takes_rows(rows, inner, num_sms)) return false;
  if (inner == 16 && density >= 0.5) return false;
  // Of blocks and dense rows, from L2. Beyond it merged lists pay, which read fewer dense rows.
  constexpr double kMostBytes = 3e8;
  const double bytes = 2 * density * static_cast<double>(rows) * static_cast<double>(k) *
                       (1 + static_cast<double>(cols) / inner);
  return cols <= 64 || bytes <= kMostBytes;
}

}  // namespace sparsek::bsr::sm90
