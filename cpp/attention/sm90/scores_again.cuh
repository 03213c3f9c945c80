#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::attn::sm90 {

/// The scores of a warp's 16 rows and a tile of keys that all of them see, once more, by that warp
/// alone, with Q and K from memory: where weights are infinite or nearly so, for scores 120 powers
/// of two above their row's maximum. Slow, in little code and few registers: it must not disturb
/// the loop.
template <class Element, class C>
class ScoresAgain {
 public:
  /// `row`: the thread's first one in the tile.
  __device__ __forceinline__ ScoresAgain(const Params& params, const Work& work, int row)
      : params_(params), work_(work), row_(row) {}

  /// Makes weights of them, and their sums, when the rows' maxima have moved. Whether they have.
  template <class Weights>
  __device__ __forceinline__ bool take(const std::int32_t* piece_keys, RowSoftmax& softmax,
                                       Weights& weights, float (&sums)[2]) const {
    Scores scores;
    float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll 1
    for (int g = 0; g < C::kGranules; ++g) {
      multiply(key_of(piece_keys, g), scores);
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        tile_max[r] = fmaxf(tile_max[r], RowSoftmax::maximum(scores, r));
      }
    }
    const bool moved = softmax.move_maxima(tile_max);
    sums[0] = sums[1] = 0;
    float again[cute::size(Weights{})];  // in local memory
#pragma unroll 1
    for (int g = 0; g < C::kGranules; ++g) {
      multiply(key_of(piece_keys, g), scores);
      softmax.exponentials(scores, sums);
      CUTE_UNROLL
      for (int i = 0; i < cute::size(scores); ++i) again[cute::size(scores) * g + i] = scores(i);
    }
    CUTE_UNROLL
    for (int i = 0; i < cute::size(weights); ++i) weights(i) = again[i];
    return moved;
  }

 private:
  // A thread's of a granule, in the order of those of a tile.
  using Scores = decltype(cute::make_tensor<float>(cute::_8{}));

  /// The first key of granule `g`. Lane 0 reads (storage.cuh).
  __device__ __forceinline__ std::int32_t key_of(const std::int32_t* piece_keys, int g) const {
    const int piece = g * kGranule / params_.pieces.keys;
    const std::int32_t key = threadIdx.x % 32 == 0 ? piece_keys[piece] : 0;
    return __shfl_sync(~0u, key, 0) + g * kGranule - piece * params_.pieces.keys;
  }

  __device__ __forceinline__ void multiply(std::int32_t first_key, Scores& scores) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, pair = lane % 4 * 2;
    const std::int32_t query = work_.q_begin + row_, key = first_key + lane / 4;
    const auto* const q = row_of<const Element>(params_.q_rows, work_.batch, work_.head, query);
    const auto* const k =
        row_of<const Element>(params_.k_rows, work_.batch, work_.head / params_.group, key);
    float c[2][4] = {};
#pragma unroll 1
    for (int column = pair; column < params_.head_dim; column += 8) {
      // The first half of a fragment's columns; the others are zero.
      std::uint32_t a[4] = {}, b[2];
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (query + 8 * r < params_.q_len) {
          a[r] = word(q + 8 * r * params_.q_rows.row_stride + column);
        }
        b[r] = word(k + 8 * r * params_.k_rows.row_stride + column);
      }
      mma<Element>(c[0], a, b[0], 0);
      mma<Element>(c[1], a, b[1], 0);
    }
    CUTE_UNROLL
    for (int i = 0; i < cute::size(scores); ++i) scores(i) = c[i / 4][i % 4];
  }

  __device__ __forceinline__ static std::uint32_t word(const Element* pair) {
    return *reinterpret_cast<const std::uint32_t*>(pair);
  }

  const Params& params_;
  const Work& work_;
  int row_;
};

}  // namespace sparsek::attn::sm90
