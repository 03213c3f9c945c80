#include "bsr_gemm/sm90/tile_choice.h"

#include <algorithm>

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

Panels choose_panels(std::int64_t groups, std::int64_t panels, int num_sms) {
  if (2 * groups > num_sms) return {panels, 0};
  const std::int64_t rounds = ceil_div(groups * panels, num_sms);
  // For each panel more four lose a quarter of their columns.
  const std::int64_t more = std::min(rounds * num_sms / groups - panels, panels / 3);
  return {panels - 3 * more, 4 * more};
}

// 132 CTAs with P panels abreast read the blocks of 132 / P groups and the dense rows of P panels,
// which together are least at P = 8 sqrt(density). With blocks that L2 keeps until they are read
// for the next panel, fewer are better, and one for small blocks.
int log2_abreast(const BsrMatrixView& m) {
  constexpr std::int64_t kKept = 10 << 20;  // values, of 16 bits
  const std::int64_t values = m.values.num_elements();
  if (values == 0) return 0;
  const double density = density_of(m);
  if (density >= 0.2 && values > kKept) return 2;
  const bool small_blocks = inner_of({m.block_rows(), m.block_cols()}) < 64;
  return density >= 0.05 && (values > kKept || !small_blocks) ? 1 : 0;
}

bool few_columns_pay(std::int64_t rows, std::int64_t k, std::int64_t cols, int inner,
                     double density, Major dense, int num_sms) {
  if (cols > kFewMostCols || !few_takes_rows(rows, inner, num_sms)) return false;
  std::int64_t read_cols = cols;
  double most_bytes = 3e8;
  if (inner == 16) {
    // A line of 32 bytes for each column and square, which takes TMA as long as a longer one.
    if (dense == Major::k) return density * static_cast<double>(cols) <= 10;
    // Lines of 64 columns, and what there is not of them takes TMA longest.
    read_cols = ceil_div(cols, 64) * 64;
    if (density > (cols == read_cols ? 0.55 : 0.4)) return false;
    most_bytes = 4e8;
  }
  // Of blocks and dense rows, from L2. Beyond it merged lists pay, which read fewer dense rows.
  const double bytes = 2 * density * static_cast<double>(rows) * static_cast<double>(k) *
                       (1 + static_cast<double>(read_cols) / inner);
  return cols <= 64 || bytes <= most_bytes;
}

}  // namespace sparsek::bsr::sm90
