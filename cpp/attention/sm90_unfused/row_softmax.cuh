#pragma once

// The softmax of a row of any length, and the float32 scores of the keys that hold most of it.

#include "attention/sm90_unfused/row.cuh"
#include "primitives/ptx.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::attn::sm90_unfused {

constexpr float kLn2 = 0.693147180559945f;

/// (row maximum, sum of 2^(score - maximum)) of a whole row or a part of it.
struct RowSum {
  float max = -INFINITY;
  float sum = 0.0f;

  /// What scores are shifted by: a row without keys must not compute inf - inf.
  __device__ float shift() const { return max == -INFINITY ? 0.0f : max; }
  __device__ float inverse() const { return max == -INFINITY ? 0.0f : 1.0f / sum; }
  __device__ float lse() const { return max == -INFINITY ? -INFINITY : (max + log2f(sum)) * kLn2; }
};

/// The eight 2^(score - shift).
struct Exponentials {
  float value[Vec::kSize];

  /// Of float16 exponentials.
  __device__ explicit Exponentials(const Vec& vec) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = __half22float2(score_pair(vec.word[i]));
      value[2 * i] = x.x;
      value[2 * i + 1] = x.y;
    }
  }
  __device__ Exponentials(const Vec& vec, float shift) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = __half22float2(score_pair(vec.word[i]));
      value[2 * i] = ptx::exp2_approx(x.x - shift);
      value[2 * i + 1] = ptx::exp2_approx(x.y - shift);
    }
  }
  __device__ float sum() const {
    return ((value[0] + value[1]) + (value[2] + value[3])) +
           ((value[4] + value[5]) + (value[6] + value[7]));
  }
  template <class Element>
  __device__ Vec probabilities(float inverse) const {
    Vec vec;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      vec.word[i] = probability_bits(Element{}, value[2 * i] * inverse, value[2 * i + 1] * inverse);
    }
    return vec;
  }
};

// A score of float16 is off by up to 2^-9 around 8, which an average over many keys hides and one
// key that holds much of a row does not. In a row whose sum is below kPeakedSum, the keys that hold
// at least 1 / kPeakedSum of it get their score again, from q and k in float32. There are at most
// kPeakedSum of them: one for each lane of the warp.
constexpr int kPeakedSum = 32;

/// The large keys of a row; lane i holds the i-th.
struct LargeKeys {
  int column = -1;
  float score = -INFINITY;
  int count = 0;

  /// Takes those of the lane's eight columns from `first` on whose bit is set; every lane takes
  /// part.
  __device__ void add(std::uint32_t large, int first, int lane) {
    while (const unsigned lanes = __ballot_sync(0xffffffffu, large != 0)) {
      const int owner = __ffs(lanes) - 1;
      const int key = __shfl_sync(0xffffffffu, first + __ffs(large) - 1, owner);
      if (lane == count) column = key;
      if (lane == owner) large &= large - 1;
      ++count;
    }
  }

  /// The base-2 logits in float32, each lane its own.
  template <class Element>
  __device__ void rescore(const SoftmaxParams& p, const Row& row) {
    if (column < 0) return;
    const int kv_head = row.head / (p.chunk.num_heads / p.chunk.num_kv_heads);
    const auto* q = static_cast<const Element*>(p.q.data) + row.batch * p.q.batch_stride +
                    row.head * p.q.head_stride + row.q * p.q.row_stride;
    const auto* k = static_cast<const Element*>(p.k.data) + row.batch * p.k.batch_stride +
                    kv_head * p.k.head_stride + column * p.k.row_stride;
    float sum = 0.0f;
    for (int d = 0; d < p.head_dim; d += Vec::kSize) {
      const Vec q_vec = *reinterpret_cast<const Vec*>(q + d);
      const Vec k_vec = *reinterpret_cast<const Vec*>(k + d);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = to_float(Element{}, q_vec.word[i]), y = to_float(Element{}, k_vec.word[i]);
        sum += x.x * y.x + x.y * y.y;
      }
    }
    score = sum * p.scale_log2;
  }

  /// The sum of the row with the new scores, given that of the other keys relative to `shift`.
  __device__ RowSum corrected(float others, float shift) const {
    RowSum total;
    total.max = warp_max(score);
    total.sum = others * ptx::exp2_approx(shift - total.shift()) +
                warp_sum(ptx::exp2_approx(score - total.shift()));
    return total;
  }

  /// Overwrites the probabilities that other lanes have stored.
  template <class Element>
  __device__ void store(const Row& row, const RowSum& total) const {
    __syncwarp();
    if (column < 0) return;
    const float x = ptx::exp2_approx(score - total.shift()) * total.inverse();
    row.scores[column] = static_cast<std::uint16_t>(probability_bits(Element{}, x, 0.0f));
  }
};

/// Which of eight are at least the threshold; the others are added to `others`.
__device__ inline std::uint32_t large_bits(const Exponentials& x, float threshold, float* others) {
  std::uint32_t large = 0;
#pragma unroll
  for (int i = 0; i < Vec::kSize; ++i) {
    const bool is_large = x.value[i] >= threshold;
    large |= static_cast<std::uint32_t>(is_large) << i;
    if (!is_large) *others += x.value[i];
  }
  return large;
}

/// A row of any length: read twice, written once; a peaked one is read once more.
template <class Element, Masking kMasking>
__device__ __noinline__ RowSum softmax_by_loop(const SoftmaxParams& p, Row row, int lane) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  constexpr int kStep = 32 * Vec::kSize;
  RowSum mine;
  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    const Vec vec = masked_scores<kMasking, true>(p, row, column);
    const float previous = mine.max;
    mine.max = fmaxf(mine.max, max_of(vec));
    mine.sum = mine.sum * ptx::exp2_approx(previous - mine.shift()) +
               Exponentials(vec, mine.shift()).sum();
  }
  RowSum total;
  total.max = warp_max(mine.max);
  total.sum = warp_sum(mine.sum * ptx::exp2_approx(mine.max - total.shift()));

  LargeKeys keys;
  if (total.max > -INFINITY && total.sum < kPeakedSum) {
    const float shift = total.shift(), threshold = total.sum / kPeakedSum;
    float others = 0.0f;
    for (int step = 0; step < num_cols; step += kStep) {
      const int column = step + lane * Vec::kSize;
      std::uint32_t large = 0;
      if (column < num_cols) {
        const Exponentials x(masked_scores<kMasking, true>(p, row, column), shift);
        large = large_bits(x, threshold, &others);
      }
      keys.add(large, column, lane);
    }
    keys.template rescore<Element>(p, row);
    total = keys.corrected(warp_sum(others), shift);
  }
  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    const Exponentials x(masked_scores<kMasking, true>(p, row, column), total.shift());
    store_vec(row.scores + column, x.template probabilities<Element>(total.inverse()),
              num_cols - column);
  }
  keys.template store<Element>(row, total);
  return total;
}

}  // namespace sparsek::attn::sm90_unfused
