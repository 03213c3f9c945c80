#pragma once

#include <cstdint>

#include "attention/cpu/kv_tiles.h"
#include "attention/cpu/tile_softmax.h"
#include "attention/problem.h"
#include "core/cpu_math.h"
#include "core/float_buffer.h"

namespace sparsek::attn::cpu {

constexpr std::int64_t kMaxHeadDim = 256;  // of keys and of values

/// Attention of one q tile after another, with the scratch of one thread. Everything is kept
/// transposed, a column for each query: S^T = K Q^T and O^T = V^T P^T then need neither K nor V
/// turned around.
class QTileWorker {
 public:
  QTileWorker(const Problem& problem, const AttentionArgs& args);

  void run(std::int64_t batch, std::int64_t head, const QTile& q_tile);

 private:
  /// Rows of k or v in float32.
  struct Rows {
    const float* data;
    std::int64_t ld;
  };

  void load_queries();
  Rows gather(const TensorView& tensor, const KvTile& kv_tile, FloatBuffer* buffer) const;
  Scores compute_scores(const KvTile& kv_tile);
  void add_values(const KvTile& kv_tile, const Scores& probabilities, bool first);
  void write_output(bool visited);
  void write_weights(bool visited);

  const Problem& problem_;
  const AttentionArgs& args_;

  // The tile at hand.
  std::int64_t batch_ = 0;
  std::int64_t head_ = 0;
  std::int64_t kv_head_ = 0;
  QTile q_tile_;
  std::int64_t cols_ = 0;  // its queries, rounded up to kLanes
  std::int64_t ld_;        // of the scratch below

  FloatBuffer queries_;  // (head_dim, queries), times scale * log2(e)
  FloatBuffer scores_;   // (kTileKv, queries), then probabilities
  FloatBuffer output_;   // (value_dim, queries)
  FloatBuffer keys_;     // (kTileKv, head_dim), where k cannot be read in place
  FloatBuffer values_;   // (kTileKv, value_dim), likewise
  float max_[kTileQ];
  float sum_[kTileQ];
  float factors_[kTileQ];
};

}  // namespace sparsek::attn::cpu
