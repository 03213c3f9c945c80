#include "attention/sm90_unfused/config.h"

#include <algorithm>

#include "core/message.h"

namespace sparsek::attn::sm90_unfused {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Config choose_config(const Problem& p) {
  Config config;
  if (p.batch == 0 || p.num_q_heads == 0 || p.q_len == 0) return config;  // asked, but never run
  config.tile_values = p.value_dim <= 64 ? 64 : 128;
  config.row_elements = round_up(p.kv_len, 8);
  const std::int64_t row_bytes = p.num_q_heads * config.row_elements * 2;  // one query, all heads
  const std::int64_t rows_in_budget = kScoresBudgetBytes / std::max<std::int64_t>(row_bytes, 1);
  if (p.q_len <= rows_in_budget) {
    config.chunk_batches = std::min(p.batch, rows_in_budget / p.q_len);
    // Batch and head share a grid axis of at most 65535.
    config.chunk_batches =
        std::max<std::int64_t>(1, std::min(config.chunk_batches, 65535 / p.num_q_heads));
    config.chunk_rows = p.q_len;
  } else {
    config.chunk_rows =
        std::min(p.q_len, std::max<std::int64_t>(kTileQ, rows_in_budget / kTileQ * kTileQ));
  }
  if (!p.wants_weights) {
    config.scores_bytes = round_up(config.chunk_batches * config.chunk_rows * row_bytes, 256);
  }
  if (p.has_mask) {
    const std::int64_t q_blocks =
        std::min((p.q_len + p.q_block - 1) / p.q_block, (config.chunk_rows - 1) / p.q_block + 2);
    const std::int64_t kv_blocks = (p.kv_len + p.kv_block - 1) / p.kv_block;
    config.table_bytes =
        round_up(config.chunk_batches * p.num_q_heads * q_blocks * kv_blocks * 4, 256);
  }
  return config;
}

std::string to_string(const Config& c) {
  return cat("tile_scores=", kTileQ, "x", kTileScoresN, "x", kTileK, " tile_values=", kTileQ, "x",
             c.tile_values, "x", kTileK, " chunk_batches=", c.chunk_batches,
             " chunk_rows=", c.chunk_rows, " scores_bytes=", c.scores_bytes,
             " table_bytes=", c.table_bytes);
}

}  // namespace sparsek::attn::sm90_unfused
