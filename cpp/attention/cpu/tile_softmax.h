#pragma once

#include <cstdint>

#include "attention/cpu/kv_tiles.h"

// Scores are kept with one row for each key and one column for each query, so that every step of
// the softmax works on vectors of queries and none has to reduce across a vector. Columns are a
// multiple of kLanes.
namespace sparsek::attn::cpu {

constexpr std::int64_t kLanes = 16;

struct Scores {
  float* data;  // (keys, queries)
  std::int64_t keys;
  std::int64_t cols;
  std::int64_t ld;
};

/// What survives inside a visited tile: scores of pairs that are not allowed become -inf.
void apply_masks(const KvTile& kv_tile, const BlockMaskView* mask, const Band& band,
                 const QTile& q_tile, const Scores& scores);

/// The running state of one softmax per column, in powers of two.
struct SoftmaxState {
  float* max;      // of the scores so far; -inf at first
  float* sum;      // of exp2(score - max); 0 at first
  float* rescale;  // what the tile just seen makes of everything accumulated before it
};

/// scores = exp2(scores - max), and the state moves on. True when some `rescale` is not 1.
bool online_softmax(const Scores& scores, const SoftmaxState& state);

/// Every column of (rows, cols) times its factor.
void scale_columns(float* data, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                   const float* factors);

/// scores = exp2(scores - max) * factors: the probabilities, once max and 1 / sum are final.
void normalise(const Scores& scores, const float* max, const float* factors);

}  // namespace sparsek::attn::cpu
