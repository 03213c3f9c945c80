#pragma once

#include "attention/base2.h"
#include "attention/wmma/params.h"
#include "primitives/ptx.cuh"
#include "primitives/quad.cuh"

namespace sparsek::attn::wmma {

/// The online softmax (Dao et al., arXiv:2205.14135) of a thread's two rows of a fragment. Element
/// 2 * r + c of [4] belongs to row r; the four lanes of a quad share a row.
class RowSoftmax {
 public:
  /// Of a thread's scores of row r: whether one is far above the row's maximum.
  template <int kTiles>
  __device__ __forceinline__ bool exceeds(const float (&scores)[kTiles][4], float margin) const {
    bool exceeds = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) exceeds |= maximum(scores, r) > max_[r] + margin;
    return exceeds;
  }

  /// Moves the rows' maxima to those of the scores, and the sums and the output with them.
  template <int kTiles, int kOutTiles>
  __device__ __forceinline__ void move_maxima(const float (&scores)[kTiles][4],
                                              float (&output)[kOutTiles][4], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float max = fmaxf(max_[r], max_of_quad(maximum(scores, r)));
      // A row that has seen nothing yet has no sum and no output to rescale.
      const float factor =
          max_[r] == -INFINITY ? 1.0f : ptx::exp2_approx((max_[r] - max) * scale_log2);
      max_[r] = max;
      sum_[r] *= factor;
#pragma unroll
      for (int j = 0; j < kOutTiles; ++j) {
        output[j][2 * r] *= factor;
        output[j][2 * r + 1] *= factor;
      }
    }
  }

  /// Turns scores into weights.
  template <int kTiles>
  __device__ __forceinline__ void exponentials(float (&scores)[kTiles][4], float scale_log2) {
    const float offset[2] = {offset_of(0, scale_log2), offset_of(1, scale_log2)};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = ptx::exp2_approx(fmaf(scores[j][i], scale_log2, -offset[i / 2]));
        sum_[i / 2] += scores[j][i];
      }
    }
  }

  /// Adds up the quad's sums. After it, inverse_sum and lse are those of the whole row.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[r] = sum_of_quad(sum_[r]);
  }
  /// 0 for a row that saw no key.
  __device__ __forceinline__ float inverse_sum(int r) const {
    return max_[r] == -INFINITY ? 0.0f : 1.0f / sum_[r];
  }
  __device__ __forceinline__ float lse(int r, float scale_log2) const {
    return max_[r] == -INFINITY ? -INFINITY : max_[r] * scale_log2 * kLn2 + logf(sum_[r]);
  }

 private:
  __device__ __forceinline__ float offset_of(int r, float scale_log2) const {
    return max_[r] == -INFINITY ? 0.0f : max_[r] * scale_log2;
  }

  template <int kTiles>
  __device__ __forceinline__ static float maximum(const float (&scores)[kTiles][4], int r) {
    float max[2] = {scores[0][2 * r], scores[0][2 * r + 1]};  // chains that need not wait
#pragma unroll
    for (int j = 1; j < kTiles; ++j) {
      max[0] = fmaxf(max[0], scores[j][2 * r]);
      max[1] = fmaxf(max[1], scores[j][2 * r + 1]);
    }
    return fmaxf(max[0], max[1]);
  }

  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0, 0};
};

}  // namespace sparsek::attn::wmma
