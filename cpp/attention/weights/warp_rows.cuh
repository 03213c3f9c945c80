#pragma once

#include "attention/base2.h"
#include "attention/store_row.cuh"
#include "attention/warp_scores.cuh"
#include "attention/weights/visible_blocks.cuh"
#include "primitives/ptx.cuh"
#include "primitives/quad.cuh"

namespace sparsek::attn::weights {

/// The rows of a warp: what their scores become. A thread has two rows of each fragment of 16
/// queries, r = 0 and 1, eight apart; the four lanes of a quad share them.
template <class Element, class C>
class WarpRows {
 public:
  __device__ __forceinline__ WarpRows(const Params& params, const Work& work,
                                      const unsigned char* q)
      : p_(params), work_(work), q_address_(q_address_of<C::kRowUnits>(q, first_row(), lane())) {}

  /// Weights are to be 2^(score - offset) times the factor: those of the lse.
  __device__ __forceinline__ void begin_by_lse() {
    for_rows([&](int m, int r) {
      const int tile_row = row_of_thread(m, r);
      float lse = -INFINITY;
      if (work_.q_begin + tile_row < work_.q_end) {
        lse = *row_of<float>(p_.lse, work_.batch, work_.head, work_.q_begin + tile_row);
      }
      // A row that sees nothing has weights of 2^(score - inf).
      offset_[m][r] = lse == -INFINITY ? INFINITY : lse * kLog2e;
      factor_[m][r] = 1;
      sum_[m][r] = 0;
    });
  }

  /// They are not known yet: the maximum and the sum are to be found.
  __device__ __forceinline__ void begin_anew() {
    for_rows([&](int m, int r) {
      offset_[m][r] = -INFINITY;
      sum_[m][r] = 0;
    });
  }

  /// A tile's maxima and sums.
  __device__ __forceinline__ void add_up(const KeyTile& keys) {
    Scores scores;
    make_scores(keys, scores);
    for_rows([&](int m, int r) {
      float max = offset_[m][r];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        max = fmaxf(max, fmaxf(scores[m][j][2 * r], scores[m][j][2 * r + 1]));
      }
      const float shift = shift_of(max);
      float sum = sum_[m][r] * ptx::exp2_approx(offset_[m][r] - shift);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sum += ptx::exp2_approx(scores[m][j][2 * r] - shift) +
               ptx::exp2_approx(scores[m][j][2 * r + 1] - shift);
      }
      offset_[m][r] = max;
      sum_[m][r] = sum;
    });
  }

  /// From maxima and sums, those of the quad, to offsets and factors.
  __device__ __forceinline__ void finish_sums() {
    for_rows([&](int m, int r) {
      const float max = max_of_quad(offset_[m][r]);
      const float shift = shift_of(max);
      const float sum = sum_of_quad(sum_[m][r] * ptx::exp2_approx(offset_[m][r] - shift));
      offset_[m][r] = shift;
      factor_[m][r] = max == -INFINITY ? 0 : 1 / sum;
    });
  }

  /// Writes the weights of a tile of keys.
  __device__ __forceinline__ void write(const KeyTile& keys) {
    Scores scores;
    make_scores(keys, scores);
    for_rows([&](int m, int r) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          scores[m][j][i] = ptx::exp2_approx(scores[m][j][i] - offset_[m][r]);
          sum_[m][r] += scores[m][j][i];
        }
      }
    });
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
      store<0>(m, keys.key, scores[m]);
      store<1>(m, keys.key, scores[m]);
    }
  }

  /// Writes what the weights of the CTA's part of the keys add up to.
  __device__ __forceinline__ void store_sums() const {
    for_rows([&](int m, int r) {
      const float sum = sum_of_quad(sum_[m][r]);
      const int tile_row = row_of_thread(m, r);
      if (lane() % 4 == 0 && work_.q_begin + tile_row < work_.q_end) {
        p_.sums[work_.part * p_.num_rows + work_.row(p_, tile_row)] = sum;
      }
    });
  }

 private:
  static constexpr int kTiles = C::kTileKv / 8;
  using Scores = float[C::kFragments][kTiles][4];

  template <class Do>
  __device__ __forceinline__ static void for_rows(const Do& act) {
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) act(m, r);
    }
  }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 * C::kWarpRows;
  }
  __device__ __forceinline__ static int row_of_thread(int m, int r) {
    return first_row() + 16 * m + 8 * r + lane() / 4;
  }
  /// A row without keys must not compute inf - inf.
  __device__ __forceinline__ static float shift_of(float max) {
    return max == -INFINITY ? 0.0f : max;
  }

  /// Scores in powers of two, -inf where the query may not see the key. Rounded, and not part of a
  /// fused multiply-add, or the same score would be another one where a maximum is taken of it.
  __device__ __forceinline__ void make_scores(const KeyTile& keys, Scores& scores) const {
    const auto load_q = [&](int m, int d, std::uint32_t (&a)[4]) {
      load_matrices(further<C::kRowUnits>(q_address_, 16 * m, 2 * d), a);
    };
    multiply_q_k<Element, C::kRowUnits>(k_address_of<C::kRowUnits>(keys.k, lane()), 0, load_q,
                                        scores);
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][j][i] = __fmul_rn(scores[m][j][i], p_.scale_log2);
      }
    }
    if (keys.seen == Seen::some) erase(keys, scores);
  }

  __device__ __forceinline__ void erase(const KeyTile& keys, Scores& scores) const {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = 8 * j + lane() % 4 * 2 + c;
        const std::int32_t key = keys.key + column;
        const std::int32_t entry = p_.lists ? keys.entries[column] : 1;
        for_rows([&](int m, int r) {
          const int tile_row = row_of_thread(m, r);
          const std::int32_t query = work_.q_begin + tile_row;
          const bool allowed = entry > 0 && key >= begin_of(p_.band, query) &&
                               key < end_of(p_.band, query) &&
                               (entry == 1 || has_bit(p_, work_, entry, tile_row, key));
          if (!allowed) scores[m][j][2 * r + c] = -INFINITY;
        });
      }
    }
  }

  template <int r>
  __device__ __forceinline__ void store(int m, std::int32_t key,
                                        const float (&weights)[kTiles][4]) const {
    const std::int32_t query = work_.q_begin + row_of_thread(m, r);
    const std::int32_t columns =
        query < work_.q_end ? min(C::kTileKv, p_.weights.value_dim - key) : 0;
    Element* const to = row_of<Element>(p_.weights, work_.batch, work_.head, query) + key;
    const auto at = [&](int i) { return weights[i / 4][i % 4]; };
    if (writes_vectors(p_, key)) {
      store_row<Element, C::kTileKv, r>(at, factor_[m][r], to, columns);
    } else {
      store_row_by_element<Element, C::kTileKv, r>(at, factor_[m][r], to, columns);
    }
  }

  const Params& p_;
  const Work& work_;
  std::uint32_t q_address_;
  float offset_[C::kFragments][2];
  float factor_[C::kFragments][2];
  float sum_[C::kFragments][2];
};

}  // namespace sparsek::attn::weights
