#pragma once

#include <cute/tensor.hpp>

#include "attention/base2.h"
#include "attention/sm90/params.h"
#include "primitives/ptx.cuh"
#include "primitives/quad.cuh"

namespace sparsek::attn::sm90 {

/// The online softmax (Dao et al., arXiv:2205.14135) of a thread's two rows. Element 4 * j + 2 * r
/// + c of a score or output fragment belongs to row r; the four lanes of a quad share a row.
class RowSoftmax {
 public:
  __device__ __forceinline__ explicit RowSoftmax(const Params& params) : params_(params) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      max_[r] = -INFINITY;
      sum_[r] = 0;
    }
  }

  /// Turns the next tile's scores into weights. True when O has to be rescaled before the tile's
  /// weights are added (for the whole warp).
  template <class Scores>
  __device__ __forceinline__ bool next(Scores& scores) {
    const bool rescale = ask(scores);
    exponentials(scores, sum_);
    return rescale;
  }

  // `next` in parts, for who asks the weights instead of the scores. Answers are the whole warp's.

  /// Moves the rows' maxima if a score is far above its row's. Whether it has.
  template <class Scores>
  __device__ __forceinline__ bool ask(const Scores& scores) {
    if (!__any_sync(~0u, may_exceed(scores, 0) | may_exceed(scores, 1))) return false;
    const float tile_max[2] = {maximum(scores, 0), maximum(scores, 1)};
    return move_maxima(tile_max);
  }
  /// Turns scores into weights, and adds these to `sums`.
  ///   kByRows  the second row's first step behind that of all of the first row: as ptxas mixes
  ///            them where nothing else orders them, the register file has more to read
  template <bool kByRows = false, class Scores>
  __device__ __forceinline__ void exponentials(Scores& scores, float (&sums)[2]) const {
    float offset[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      offset[r] = max_[r] == -INFINITY ? 0.0f : max_[r] * params_.scale_log2;
    if constexpr (kByRows) {
      to_exponents(scores, 0, offset[0]);
      const int nothing = params_.head_dim >> 31;  // but ptxas does not know
      const int last = __float_as_int(scores(cute::size(scores) - 3));
      offset[1] = __int_as_float(__float_as_int(offset[1]) | (last & nothing));
      to_exponents(scores, 1, offset[1]);
    }
    CUTE_UNROLL
    for (int i = 0; i < cute::size(scores); ++i) {
      const int r = i / 2 % 2;
      const float x = kByRows ? scores(i) : fmaf(scores(i), params_.scale_log2, -offset[r]);
      scores(i) = ptx::exp2_approx(x);
      sums[r] += scores(i);
    }
  }
  /// Whether a weight may be too large for float16, by a tile's sums.
  __device__ __forceinline__ static bool exceed(const float (&sums)[2]) {
    constexpr float kMost = 32768;
    return __any_sync(~0u, !(sums[0] <= kMost) | !(sums[1] <= kMost));
  }
  /// Whether the weights still say what their scores were, and may be divided by the largest, which
  /// is a normal number's inverse.
  __device__ __forceinline__ static bool can_move(const float (&sums)[2]) {
    constexpr float kMost = 0x1p120f;
    return __all_sync(~0u, (sums[0] < kMost) & (sums[1] < kMost));
  }
  /// Moves the rows' maxima to those of the tile of which these are the weights and their sums, and
  /// both with them. Whether it has.
  template <class Weights>
  __device__ __forceinline__ bool move_to(Weights& weights, float (&sums)[2]) {
    float tile_max[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      tile_max[r] = max_[r] + __log2f(maximum(weights, r)) / params_.scale_log2;
    }
    if (!move_maxima(tile_max)) return false;
    rescale(weights);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) sums[r] *= factor_[r];
    return true;
  }
  __device__ __forceinline__ void add(const float (&sums)[2]) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) sum_[r] += sums[r];
  }
  /// Whether a row has seen no key yet.
  __device__ __forceinline__ bool any_unseen() const {
    return __any_sync(~0u, (max_[0] == -INFINITY) | (max_[1] == -INFINITY));
  }
  /// Of a row's scores, or its weights.
  template <class Scores>
  __device__ __forceinline__ static float maximum(const Scores& scores, int r) {
    float max = fmaxf(scores(2 * r), scores(2 * r + 1));
    CUTE_UNROLL
    for (int j = 4; j < cute::size(scores); j += 4) {
      max = fmaxf(max, fmaxf(scores(j + 2 * r), scores(j + 2 * r + 1)));
    }
    return max_of_quad(max);
  }
  /// Moves the rows' maxima to at least these, when one grows enough, and the sums with them.
  __device__ __forceinline__ bool move_maxima(const float (&tile_max)[2]) {
    bool grown = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) grown |= tile_max[r] > max_[r] + params_.rescale_margin;
    if (!__any_sync(~0u, grown)) return false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float max = fmaxf(max_[r], tile_max[r]);
      // A row that has seen nothing yet has no sum and no output to rescale.
      factor_[r] =
          max_[r] == -INFINITY ? 1.0f : ptx::exp2_approx((max_[r] - max) * params_.scale_log2);
      sum_[r] *= factor_[r];
      max_[r] = max;
    }
    return true;
  }

  template <class Accumulator>
  __device__ __forceinline__ void rescale(Accumulator& output) const {
    CUTE_UNROLL
    for (int i = 0; i < cute::size(output); ++i) output(i) *= factor_[i / 2 % 2];
  }

  /// Adds up the quad's sums. After it, inverse_sum and lse are those of the whole row.
  __device__ __forceinline__ void finish() {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) sum_[r] = sum_of_quad(sum_[r]);
  }
  /// After it: what a row has seen.
  struct Seen {
    float max;
    float sum;
  };
  __device__ __forceinline__ Seen seen(int r) const { return {max_[r], sum_[r]}; }
  /// After it: adds what another has seen of the row, of other keys. Returns by what O, this one's
  /// and the other's, is to be multiplied before they are added.
  struct Factors {
    float own, other;
  };
  __device__ __forceinline__ Factors join(int r, const Seen& other) {
    const float max = fmaxf(max_[r], other.max);
    const float offset = max == -INFINITY ? 0.0f : max;
    const Factors factors{ptx::exp2_approx((max_[r] - offset) * params_.scale_log2),
                          ptx::exp2_approx((other.max - offset) * params_.scale_log2)};
    sum_[r] = sum_[r] * factors.own + other.sum * factors.other;
    max_[r] = max;
    return factors;
  }
  /// 0 for a row that saw no key.
  __device__ __forceinline__ float inverse_sum(int r) const {
    return max_[r] == -INFINITY ? 0.0f : ptx::reciprocal_approx(sum_[r]);
  }
  __device__ __forceinline__ float lse(int r) const {
    return max_[r] == -INFINITY ? -INFINITY : max_[r] * params_.scale_log2 * kLn2 + logf(sum_[r]);
  }

 private:
  /// False when no score of this thread is far above its row's maximum. As integers, floats above
  /// zero keep their order and stand above all others, and Hopper has a maximum of three integers.
  /// Where the limit is below zero the answer is always true.
  template <class Scores>
  __device__ __forceinline__ bool may_exceed(const Scores& scores, int r) const {
    int largest[2] = {0, 0};  // two chains, so that one need not wait for the other
    CUTE_UNROLL
    for (int j = 0; j < cute::size(scores); j += 4) {
      int& chain = largest[j / 4 % 2];
      chain = __vimax3_s32(__float_as_int(scores(j + 2 * r)), __float_as_int(scores(j + 2 * r + 1)),
                           chain);
    }
    return max(largest[0], largest[1]) > __float_as_int(max_[r] + params_.rescale_margin);
  }

  /// Turns a row's scores into the powers of two that its weights are.
  template <class Scores>
  __device__ __forceinline__ void to_exponents(Scores& scores, int r, float offset) const {
    CUTE_UNROLL
    for (int j = 2 * r; j < cute::size(scores); j += 4) {
      scores(j) = fmaf(scores(j), params_.scale_log2, -offset);
      scores(j + 1) = fmaf(scores(j + 1), params_.scale_log2, -offset);
    }
  }

  const Params& params_;
  float max_[2];
  float factor_[2];
  float sum_[2];
};

}  // namespace sparsek::attn::sm90
