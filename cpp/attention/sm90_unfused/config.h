#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attention/problem.h"

namespace sparsek::attn::sm90_unfused {

// Tiles of the two GEMMs, (q, kv or value dim, k).
constexpr int kTileQ = 64;
constexpr int kTileScoresN = 256;
constexpr int kTileK = 64;
constexpr int kScoresStages = 3;
constexpr int kValuesStages = 4;
constexpr int kSoftmaxWarps = 4;  // rows of a CTA: few, since the slowest holds the others
/// As many as leave a row of 256 * vecs scores its registers, without spills.
constexpr int softmax_ctas_per_sm(int vecs, bool blocks) {
  return vecs == 8 ? 5 : vecs == 2 || blocks ? 7 : 8;
}

constexpr std::int64_t kMaxHeadDim = 256;

// Scores of one chunk: all heads of some batches, or all heads of some rows of one batch. Small
// enough to stay in L2 between the three kernels, large enough to fill the chip.
constexpr std::int64_t kScoresBudgetBytes = std::int64_t{48} << 20;

/// How a problem is cut into launches.
struct Config {
  int tile_values = 64;  // N tile of the second GEMM: 64 or 128
  std::int64_t chunk_batches = 1;
  std::int64_t chunk_rows = 0;    // queries; q_len when chunk_batches > 1
  std::int64_t row_elements = 0;  // scores of a row, padded to 16 bytes
  std::size_t scores_bytes = 0;   // 0 when the caller's weights hold them
  std::size_t table_bytes = 0;    // the block table of one chunk
};

Config choose_config(const Problem& problem);

std::string to_string(const Config& config);

}  // namespace sparsek::attn::sm90_unfused
