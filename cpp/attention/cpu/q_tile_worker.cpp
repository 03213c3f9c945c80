#include "attention/cpu/q_tile_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/base2.h"
#include "core/cpu_gemm.h"

namespace sparsek::attn::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Rows [begin, begin + count) of one head of q, k, v or out.
MatrixRef head_rows(const TensorView& tensor, std::int64_t batch, std::int64_t head,
                    std::int64_t begin, std::int64_t count) {
  MatrixRef rows{tensor.data, tensor.dtype, count, tensor.shape[3], tensor.stride[1], 1};
  const std::int64_t offset =
      batch * tensor.stride[0] + begin * tensor.stride[1] + head * tensor.stride[2];
  rows.data = rows.at(0, offset);
  return rows;
}

}  // namespace

QTileWorker::QTileWorker(const Problem& problem, const AttentionArgs& args)
    : problem_(problem),
      args_(args),
      ld_(padded_row(kTileQ)),
      queries_(problem.head_dim * ld_),
      scores_(kTileKv * ld_),
      output_(problem.value_dim * ld_) {}

void QTileWorker::run(std::int64_t batch, std::int64_t head, const QTile& q_tile) {
  batch_ = batch;
  head_ = head;
  kv_head_ = head / (problem_.num_q_heads / problem_.num_kv_heads);
  q_tile_ = q_tile;
  cols_ = (q_tile.size() + kLanes - 1) / kLanes * kLanes;
  std::fill_n(max_, cols_, kMinusInfinity);
  std::fill_n(sum_, cols_, 0.0f);

  bool visited = false;
  KvTiles kv_tiles(args_.mask, problem_.band, batch, head, problem_.num_q_heads, q_tile);
  for (KvTile kv_tile; kv_tiles.next(&kv_tile); visited = true) {
    if (!visited) load_queries();
    const Scores scores = compute_scores(kv_tile);
    const bool rescales = online_softmax(scores, {max_, sum_, factors_});
    if (visited && rescales) {
      scale_columns(output_.data(), problem_.value_dim, cols_, ld_, factors_);
    }
    add_values(kv_tile, scores, !visited);
  }
  // From here on, the factors are what the sums leave to divide by; 0 where a query saw nothing.
  for (std::int64_t col = 0; col < cols_; ++col) {
    factors_[col] = sum_[col] == 0 ? 0.0f : 1.0f / sum_[col];
  }
  write_output(visited);
  if (args_.weights.given()) write_weights(visited);
}

void QTileWorker::load_queries() {
  const MatrixRef q = head_rows(args_.q, batch_, head_, q_tile_.begin, q_tile_.size());
  load_matrix(q.transposed(), queries_.data(), ld_);
  const float factor = problem_.scale * kLog2e;
  for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
    float* const row = queries_.data() + d * ld_;
    for (std::int64_t col = 0; col < q_tile_.size(); ++col) row[col] *= factor;
    std::fill(row + q_tile_.size(), row + cols_, 0.0f);
  }
}

QTileWorker::Rows QTileWorker::gather(const TensorView& tensor, const KvTile& kv_tile,
                                      FloatBuffer* buffer) const {
  if (tensor.dtype == DType::float32 && kv_tile.num_runs == 1) {
    const KvRun& run = kv_tile.runs[0];
    const MatrixRef rows = head_rows(tensor, batch_, kv_head_, run.key, run.count);
    return {static_cast<const float*>(rows.data), rows.row_stride};
  }
  const std::int64_t ld = padded_row(tensor.shape[3]);
  float* const data = buffer->reserve(kTileKv * ld);
  for (std::int64_t i = 0; i < kv_tile.num_runs; ++i) {
    const KvRun& run = kv_tile.runs[i];
    load_matrix(head_rows(tensor, batch_, kv_head_, run.key, run.count), data + run.row * ld, ld);
  }
  return {data, ld};
}

Scores QTileWorker::compute_scores(const KvTile& kv_tile) {
  const Rows k = gather(args_.k, kv_tile, &keys_);
  const Scores scores{scores_.data(), kv_tile.num_keys, cols_, ld_};
  cpu_gemm(kv_tile.num_keys, cols_, problem_.head_dim, k.data, k.ld, 1, queries_.data(), ld_,
           scores.data, ld_, false);
  apply_masks(kv_tile, args_.mask, problem_.band, q_tile_, scores);
  return scores;
}

void QTileWorker::add_values(const KvTile& kv_tile, const Scores& probabilities, bool first) {
  const Rows v = gather(args_.v, kv_tile, &values_);
  const std::int64_t value_dim = problem_.value_dim, num_keys = kv_tile.num_keys;
  if (kv_tile.whole() || all_finite(v.data, num_keys, value_dim, v.ld)) {
    return cpu_gemm(value_dim, cols_, num_keys, v.data, 1, v.ld, probabilities.data, ld_,
                    output_.data(), ld_, !first);
  }
  // An infinity or a NaN that some query may not see: 0 * inf must not reach it.
  if (first) std::fill_n(output_.data(), value_dim * ld_, 0.0f);
  for (std::int64_t key = 0; key < num_keys; ++key) {
    for (std::int64_t col = 0; col < cols_; ++col) {
      const float probability = probabilities.data[key * ld_ + col];
      if (probability == 0) continue;
      for (std::int64_t d = 0; d < value_dim; ++d) {
        output_.data()[d * ld_ + col] += probability * v.data[key * v.ld + d];
      }
    }
  }
}

void QTileWorker::write_output(bool visited) {
  const std::int64_t value_dim = problem_.value_dim;
  if (!visited) std::fill_n(output_.data(), value_dim * ld_, 0.0f);
  float row[kMaxHeadDim];
  const MatrixRef out = head_rows(args_.out, batch_, head_, q_tile_.begin, q_tile_.size());
  for (std::int64_t col = 0; col < q_tile_.size(); ++col) {
    // Not a product with 0: a query that saw nothing may share its tile with others, and with their
    // infinities.
    const bool empty = sum_[col] == 0;
    for (std::int64_t d = 0; d < value_dim; ++d) {
      row[d] = empty ? 0.0f : output_.data()[d * ld_ + col] * factors_[col];
    }
    from_float32(row, out.at(col, 0), out.dtype, value_dim);
  }
  if (!args_.lse.given()) return;
  const TensorView& lse = args_.lse;
  float* const place = static_cast<float*>(lse.data) + batch_ * lse.stride[0] +
                       head_ * lse.stride[1] + q_tile_.begin * lse.stride[2];
  for (std::int64_t col = 0; col < q_tile_.size(); ++col) {
    place[col * lse.stride[2]] =
        sum_[col] == 0 ? kMinusInfinity : (max_[col] + std::log2(sum_[col])) * kLn2;
  }
}

/// A second walk over the tiles, now that the sums are known.
void QTileWorker::write_weights(bool visited) {
  const TensorView& weights = args_.weights;  // (B, Hq, Sq, Sk)
  if (problem_.kv_len == 0) return;
  MatrixRef rows{weights.data,    weights.dtype,     q_tile_.size(),
                 problem_.kv_len, weights.stride[2], 1};
  rows.data = rows.at(0, batch_ * weights.stride[0] + head_ * weights.stride[1] +
                             q_tile_.begin * weights.stride[2]);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::memset(rows.at(row, 0), 0, static_cast<std::size_t>(rows.cols) * size_of(rows.dtype));
  }
  if (!visited) return;
  KvTiles kv_tiles(args_.mask, problem_.band, batch_, head_, problem_.num_q_heads, q_tile_);
  for (KvTile kv_tile; kv_tiles.next(&kv_tile);) {
    const Scores scores = compute_scores(kv_tile);
    normalise(scores, max_, factors_);
    for (std::int64_t i = 0; i < kv_tile.num_runs; ++i) {
      const KvRun& run = kv_tile.runs[i];
      store_matrix(scores.data + run.row * ld_, ld_,
                   rows.part(0, run.key, rows.rows, run.count).transposed());
    }
  }
}

}  // namespace sparsek::attn::cpu
