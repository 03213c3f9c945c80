#pragma once

#include "attention/store_row.cuh"
#include "attention/wmma/row_softmax.cuh"
#include "attention/wmma/storage.cuh"
#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::attn::wmma {

/// The rows of a warp: their scores against a step of keys, softmax, and output.
template <class Element, class C>
class WarpTile {
 public:
  __device__ __forceinline__ WarpTile(const Params& params, const Work& work,
                                      const unsigned char* q)
      : params_(params),
        q_begin_(work.q_begin + first_row()),
        q_end_(min(q_begin_ + C::kWarpRows, work.q_end)),
        q_address_(shared_address(q) +
                   swizzled<C::kRowUnits>(first_row() + lane() % 16, lane() / 16)) {
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int j = 0; j < C::kHeadDim / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output_[m][j][i] = 0;
      }
    }
  }

  /// Once Q is there.
  __device__ __forceinline__ void begin() {
    if constexpr (C::kQInRegs) {
#pragma unroll
      for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
        for (int k = 0; k < kDepth; ++k) load_q(m, k, q_[m][k]);
      }
    }
  }

  /// A tile of consecutive keys.
  __device__ __forceinline__ void range_tile(const unsigned char* k, const unsigned char* v,
                                             std::int32_t first_key) {
    if (!sees(first_key, first_key + C::kTileKv)) return;
    const bool masked = !sees_all(first_key, first_key + C::kTileKv);
    multiply(k, v, masked, [&](int g) { return Granule{first_key + g * kGranule, -1, 0}; });
  }

  /// A tile of a list.
  __device__ __forceinline__ void list_tile(const unsigned char* k, const unsigned char* v,
                                            const TileNote& note, const Granule* granules) {
    if (!sees(note.begin, note.end)) return;
    const bool masked = !note.plain || !sees_all(note.begin, note.end);
    multiply(k, v, masked, [&](int g) { return granules[g]; });
  }

  /// Divides by the rows' sums and writes O and lse.
  __device__ __forceinline__ void store(const Work& work) {
    store_fragment<0>(work);
    if constexpr (C::kFragments > 1) store_fragment<1>(work);
    static_assert(C::kFragments <= 2);
  }

 private:
  static constexpr int kDepth = C::kHeadDim / 16;
  static constexpr int kTiles = C::kStep / 8;
  using Scores = float[C::kFragments][kTiles][4];

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 * C::kWarpRows;
  }

  /// Whether causal and window let some query of the warp see some of the keys.
  __device__ __forceinline__ bool sees(std::int32_t begin, std::int32_t end) const {
    return q_begin_ < q_end_ && meets(visible_keys(params_.band, q_begin_, q_end_), begin, end);
  }
  __device__ __forceinline__ bool sees_all(std::int32_t begin, std::int32_t end) const {
    return contains(shared_keys(params_.band, q_begin_, q_end_), begin, end);
  }

  __device__ __forceinline__ void load_q(int m, int k, std::uint32_t (&a)[4]) const {
    load_matrices(further<C::kRowUnits>(q_address_, 16 * m, 2 * k), a);
  }

  __device__ __forceinline__ void multiply_q_k(const unsigned char* tile, int column,
                                               Scores& scores) const {
    const std::uint32_t address =
        shared_address(tile) + swizzled<C::kRowUnits>(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][j][i] = 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      std::uint32_t a[C::kFragments][4];
#pragma unroll
      for (int m = 0; m < C::kFragments; ++m) {
        if constexpr (C::kQInRegs) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[m][i] = q_[m][k][i];
        } else {
          load_q(m, k, a[m]);
        }
      }
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        std::uint32_t b[4];
        load_matrices(further<C::kRowUnits>(address, column + 8 * j, 2 * k), b);
#pragma unroll
        for (int m = 0; m < C::kFragments; ++m) {
          mma<Element>(scores[m][j], a[m], b[0], b[1]);
          mma<Element>(scores[m][j + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// One step of keys after the other.
  template <class GranuleOf>
  __device__ __forceinline__ void multiply(const unsigned char* k, const unsigned char* v,
                                           bool masked, const GranuleOf& granule_of) {
#pragma unroll
    for (int column = 0; column < C::kTileKv; column += C::kStep) {
      Scores scores;
      multiply_q_k(k, column, scores);
      if (masked) {
#pragma unroll
        for (int g = 0; g < C::kStep / kGranule; ++g) {
          erase(granule_of(column / kGranule + g), g, scores);
          asm volatile("" ::: "memory");  // all notes in registers at once would not fit
        }
      }
      follow_maxima(scores);
#pragma unroll
      for (int m = 0; m < C::kFragments; ++m) {
        softmax_[m].exponentials(scores[m], params_.scale_log2);
      }
      multiply_p_v(v, column, scores);
    }
  }

  __device__ __forceinline__ void follow_maxima(const Scores& scores) {
    bool exceeds = false;
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
      exceeds |= softmax_[m].exceeds(scores[m], params_.rescale_margin);
    }
    if (__any_sync(~0u, exceeds)) {
#pragma unroll
      for (int m = 0; m < C::kFragments; ++m) {
        softmax_[m].move_maxima(scores[m], output_[m], params_.scale_log2);
      }
    }
  }

  __device__ __forceinline__ void multiply_p_v(const unsigned char* tile, int column,
                                               const Scores& scores) {
    const std::uint32_t address =
        shared_address(tile) + swizzled<C::kRowUnits>(lane() % 16, lane() / 16);
#pragma unroll
    for (int k = 0; k < C::kStep / 16; ++k) {
      std::uint32_t a[C::kFragments][4];
#pragma unroll
      for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &scores[m][2 * k + i / 2][i % 2 * 2];
          a[m][i] = pack<Element>(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int j = 0; j < C::kHeadDim / 8; j += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(further<C::kRowUnits>(address, column + 16 * k, j), b);
#pragma unroll
        for (int m = 0; m < C::kFragments; ++m) {
          mma<Element>(output_[m][j], a[m], b[0], b[1]);
          mma<Element>(output_[m][j + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// -inf where the query may not see the key. `g`: which 16 of the step's keys.
  __device__ __forceinline__ void erase(const Granule& granule, int g, Scores& scores) const {
    const int pair = lane() % 4 * 2;
    const std::int32_t first_in_block = granule.bitmap < 0 ? 0 : q_begin_ % params_.q_block;
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 16 * m + lane() / 4 + 8 * r;
        const KeyRange seen = visible_keys(params_.band, q_begin_ + row, q_begin_ + row + 1);
        const int begin = seen.begin - granule.key - pair;
        const int end = seen.end - granule.key - pair;
        std::uint32_t bits = ~0u;
        if (granule.bitmap >= 0) {
          // A row past the tile's end, which may be past the block's, is not stored.
          const std::int32_t in_block = first_in_block + min(row, q_end_ - q_begin_ - 1);
          bits = bitmap_row(params_.mask, granule.bitmap, in_block)[granule.column / 32] >>
                 granule.column % 32 >> pair;
        }
#pragma unroll
        for (int column = 0; column < kGranule; column += 8) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int at = column + c;
            const bool allowed = at >= begin && at < end && (bits >> at & 1);
            if (!allowed) scores[m][2 * g + column / 8][2 * r + c] = -INFINITY;
          }
        }
      }
    }
  }

  template <int m>
  __device__ __forceinline__ void store_fragment(const Work& work) {
    softmax_[m].finish();
    store_row_of<m, 0>(work);
    store_row_of<m, 1>(work);
  }

  template <int m, int r>
  __device__ __forceinline__ void store_row_of(const Work& work) const {
    const auto at = [&](int i) { return output_[m][i / 4][i % 4]; };
    struct {
      const RowSoftmax& rows;
      float scale_log2;
      __device__ float inverse_sum(int row) const { return rows.inverse_sum(row); }
      __device__ float lse(int row) const { return rows.lse(row, scale_log2); }
    } softmax{softmax_[m], params_.scale_log2};
    write_row<Element, C::kHeadDim, r>(params_.out, params_.lse, work,
                                       q_begin_ - work.q_begin + 16 * m + lane() / 4, q_end_, at,
                                       softmax);
  }

  const Params& params_;
  std::int32_t q_begin_;
  std::int32_t q_end_;
  std::uint32_t q_address_;
  std::uint32_t q_[C::kQInRegs ? C::kFragments : 1][C::kQInRegs ? kDepth : 1][4];
  float output_[C::kFragments][C::kHeadDim / 8][4];
  RowSoftmax softmax_[C::kFragments];
};

}  // namespace sparsek::attn::wmma
