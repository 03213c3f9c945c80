#pragma once

#include "attention/store_row.cuh"
#include "attention/warp_scores.cuh"
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
        work_(work),
        q_begin_(work.q_begin + first_row()),
        q_end_(min(q_begin_ + C::kWarpRows, work.q_end)),
        q_address_(q_address_of<C::kRowUnits>(q, first_row(), lane())) {
    zero(output_);
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
  template <class GranuleOf>
  __device__ __forceinline__ void list_tile(const unsigned char* k, const unsigned char* v,
                                            const TileNote& note, const GranuleOf& granule_of) {
    if (!sees(note.begin, note.end)) return;
    const bool masked = !note.plain || !sees_all(note.begin, note.end);
    multiply(k, v, masked, granule_of);
  }

  /// Divides by the rows' sums and writes O and lse.
  __device__ __forceinline__ void store() {
    store_fragment<0>();
    if constexpr (C::kFragments > 1) store_fragment<1>();
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

  // The warp's queries.
  __device__ __forceinline__ std::int32_t q_begin() const {
    return C::kFewRegisters ? work_.q_begin + first_row() : q_begin_;
  }
  __device__ __forceinline__ std::int32_t q_end() const {
    return C::kFewRegisters ? min(q_begin() + C::kWarpRows, work_.q_end) : q_end_;
  }

  /// Whether causal and window let some query of the warp see some of the keys.
  __device__ __forceinline__ bool sees(std::int32_t begin, std::int32_t end) const {
    return q_begin() < q_end() && meets(visible_keys(params_.band, q_begin(), q_end()), begin, end);
  }
  __device__ __forceinline__ bool sees_all(std::int32_t begin, std::int32_t end) const {
    return contains(shared_keys(params_.band, q_begin(), q_end()), begin, end);
  }

  __device__ __forceinline__ void load_q(int m, int k, std::uint32_t (&a)[4]) const {
    load_matrices(further<C::kRowUnits>(q_address_, 16 * m, 2 * k), a);
  }

  /// Of Q as a product wants it.
  __device__ __forceinline__ void take_q(int m, int k, std::uint32_t (&a)[4]) const {
    if constexpr (C::kQInRegs) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = q_[m][k][i];
    } else {
      load_q(m, k, a);
    }
  }

  /// The lane; where registers are few, unknown to the compiler, so that what depends on it is not
  /// kept from tile to tile, and spilled.
  __device__ __forceinline__ static int lane_in_tile() {
    int thread = static_cast<int>(threadIdx.x);
    if constexpr (C::kFewRegisters) asm volatile("" : "+r"(thread));
    return thread % 32;
  }

  /// One step of keys after the other.
  template <class GranuleOf>
  __device__ __forceinline__ void multiply(const unsigned char* k, const unsigned char* v,
                                           bool masked, const GranuleOf& granule_of) {
    const int lane = lane_in_tile();
    const std::uint32_t k_address = k_address_of<C::kRowUnits>(k, lane);
    const std::uint32_t v_address =
        shared_address(v) + swizzled<C::kRowUnits>(lane % 16, lane / 16);
#pragma unroll
    for (int column = 0; column < C::kTileKv; column += C::kStep) {
      Scores scores;
      multiply_q_k<Element, C::kRowUnits>(
          k_address, column, [&](int m, int d, std::uint32_t (&a)[4]) { take_q(m, d, a); }, scores);
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
      multiply_p_v(v_address, column, scores);
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

  __device__ __forceinline__ void multiply_p_v(std::uint32_t address, int column,
                                               const Scores& scores) {
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
    const std::uint32_t* bitmap = nullptr;  // from the tile's first query and these keys on
    std::uint32_t shift = 0;
    if (granule.bitmap >= 0) {
      bitmap = bitmap_row(params_.mask, granule.bitmap, q_begin() % params_.q_block) +
               granule.column / 32;
      shift = granule.column % 32 + pair;
    }
#pragma unroll
    for (int m = 0; m < C::kFragments; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 16 * m + lane() / 4 + 8 * r;
        const KeyRange seen = visible_keys(params_.band, q_begin() + row, q_begin() + row + 1);
        const int begin = seen.begin - granule.key - pair;
        const int end = min(seen.end - granule.key, params_.kv_block - granule.column) - pair;
        std::uint32_t bits = ~0u;
        if (granule.bitmap >= 0) {
          // A row past the tile's end, which may be past the block's, is not stored.
          const std::int32_t last = q_end() - q_begin() - 1;
          const auto words = static_cast<std::int32_t>(bitmap_words(params_.mask));
          bits = bitmap[min(row, last) * words] >> shift;  // of at most 32 rows
        }
#pragma unroll
        for (int half = 0; half < kGranule; half += 8) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int at = half + c;
            const bool allowed = at >= begin && at < end && (bits >> at & 1);
            if (!allowed) scores[m][2 * g + half / 8][2 * r + c] = -INFINITY;
          }
        }
      }
    }
  }

  template <int m>
  __device__ __forceinline__ void store_fragment() {
    softmax_[m].finish();
    store_row_of<m, 0>();
    store_row_of<m, 1>();
  }

  template <int m, int r>
  __device__ __forceinline__ void store_row_of() const {
    const auto at = [&](int i) { return output_[m][i / 4][i % 4]; };
    struct {
      const RowSoftmax& rows;
      float scale_log2;
      __device__ float inverse_sum(int row) const { return rows.inverse_sum(row); }
      __device__ float lse(int row) const { return rows.lse(row, scale_log2); }
    } softmax{softmax_[m], params_.scale_log2};
    write_row<Element, C::kHeadDim, r>(params_.out, params_.lse, work_,
                                       first_row() + 16 * m + lane() / 4, q_end(), at, softmax);
  }

  const Params& params_;
  const Work& work_;
  std::int32_t q_begin_;
  std::int32_t q_end_;
  std::uint32_t q_address_;
  std::uint32_t q_[C::kQInRegs ? C::kFragments : 1][C::kQInRegs ? kDepth : 1][4];
  float output_[C::kFragments][C::kHeadDim / 8][4];
  RowSoftmax softmax_[C::kFragments];
};

}  // namespace sparsek::attn::wmma
