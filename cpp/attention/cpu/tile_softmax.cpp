#include "attention/cpu/tile_softmax.h"

#include <algorithm>
#include <limits>

#include "core/simd.h"
#include "core/simd_math.h"

namespace sparsek::attn::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Row j keeps the columns with first[col] <= j < last[col].
struct KeepBand {
  template <int kWidth>
  SPARSEK_INLINE static void run(Scores scores, const std::int32_t* first,
                                 const std::int32_t* last) {
    using Float = typename Simd<kWidth>::Float;
    using Int = typename Simd<kWidth>::Int;
    for (std::int32_t key = 0; key < scores.keys; ++key) {
      float* const row = scores.data + key * scores.ld;
      for (std::int64_t col = 0; col < scores.cols; col += kWidth) {
        const Int kept = (load<Int>(first + col) <= key) & (load<Int>(last + col) > key);
        store(row + col, kept ? load<Float>(row + col) : Float{} + kMinusInfinity);
      }
    }
  }
};

/// Row j keeps the columns whose word has bit first_bit + j.
struct KeepBits {
  template <int kWidth>
  SPARSEK_INLINE static void run(Scores scores, const std::uint32_t* words, int first_bit) {
    using Float = typename Simd<kWidth>::Float;
    using Uint = typename Simd<kWidth>::Uint;
    for (std::int64_t key = 0; key < scores.keys; ++key) {
      float* const row = scores.data + key * scores.ld;
      const std::uint32_t bit = 1u << (first_bit + key);
      for (std::int64_t col = 0; col < scores.cols; col += kWidth) {
        const auto kept = (load<Uint>(words + col) & bit) != 0;
        store(row + col, kept ? load<Float>(row + col) : Float{} + kMinusInfinity);
      }
    }
  }
};

struct OnlineSoftmax {
  template <int kWidth>
  SPARSEK_INLINE static void run(Scores scores, SoftmaxState state, bool* rescales) {
    using Float = typename Simd<kWidth>::Float;
    using Int = typename Simd<kWidth>::Int;
    Int any{};
    for (std::int64_t col = 0; col < scores.cols; col += kWidth) {
      const Float old_max = load<Float>(state.max + col);
      Float max = old_max;
      for (std::int64_t key = 0; key < scores.keys; ++key) {
        const Float score = load<Float>(scores.data + key * scores.ld + col);
        max = score > max ? score : max;  // passes over a NaN, which exp2 below brings back
      }
      // Where nothing is allowed yet, -inf - 0 gives 0; -inf - -inf would give NaN.
      const Float base = max == kMinusInfinity ? Float{} : max;
      Float sum{};
      for (std::int64_t key = 0; key < scores.keys; ++key) {
        float* const place = scores.data + key * scores.ld + col;
        const Float power = exp2<kWidth>(load<Float>(place) - base);
        sum += power;
        store(place, power);
      }
      const Float rescale = exp2<kWidth>(old_max - base);
      any |= rescale != 1.0f;
      store(state.max + col, max);
      store(state.sum + col, load<Float>(state.sum + col) * rescale + sum);
      store(state.rescale + col, rescale);
    }
    for (int lane = 0; lane < kWidth; ++lane) *rescales |= any[lane] != 0;
  }
};

struct ScaleColumns {
  template <int kWidth>
  SPARSEK_INLINE static void run(float* data, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                                 const float* factors) {
    using Float = typename Simd<kWidth>::Float;
    for (std::int64_t row = 0; row < rows; ++row, data += ld) {
      for (std::int64_t col = 0; col < cols; col += kWidth) {
        store(data + col, load<Float>(data + col) * load<Float>(factors + col));
      }
    }
  }
};

struct Normalise {
  template <int kWidth>
  SPARSEK_INLINE static void run(Scores scores, const float* max, const float* factors) {
    using Float = typename Simd<kWidth>::Float;
    for (std::int64_t col = 0; col < scores.cols; col += kWidth) {
      const Float last_max = load<Float>(max + col);
      const Float base = last_max == kMinusInfinity ? Float{} : last_max;
      const Float factor = load<Float>(factors + col);
      for (std::int64_t key = 0; key < scores.keys; ++key) {
        float* const place = scores.data + key * scores.ld + col;
        store(place, exp2<kWidth>(load<Float>(place) - base) * factor);
      }
    }
  }
};

Scores rows_of(const Scores& scores, std::int64_t row, std::int64_t count) {
  return {scores.data + row * scores.ld, count, scores.cols, scores.ld};
}

void apply_band(const KvRun& run, const Band& band, const QTile& q_tile, const Scores& scores) {
  std::int32_t first[kTileQ], last[kTileQ];
  for (std::int64_t col = 0; col < scores.cols; ++col) {
    const std::int64_t query = std::min(q_tile.begin + col, q_tile.end - 1);  // padding: any
    const auto within = [&](std::int64_t key) {
      return static_cast<std::int32_t>(std::clamp<std::int64_t>(key - run.key, 0, run.count));
    };
    first[col] = within(band.begin(query));
    last[col] = within(band.end(query));
  }
  simd_dispatch<KeepBand>(rows_of(scores, run.row, run.count),
                          static_cast<const std::int32_t*>(first),
                          static_cast<const std::int32_t*>(last));
}

void apply_bitmap(const KvRun& run, const BlockMaskView& mask, const QTile& q_tile,
                  const Scores& scores) {
  std::uint32_t words[kTileQ] = {};
  const std::int64_t first_row = q_tile.begin - q_tile.q_block * mask.q_block;
  for (std::int64_t done = 0; done < run.count;) {
    const std::int64_t bit = run.bitmap_col + done;
    const std::int64_t count = std::min(32 - bit % 32, run.count - done);
    for (std::int64_t col = 0; col < q_tile.size(); ++col) {
      words[col] = bitmap_row(mask, run.bitmap, first_row + col)[bit / 32];
    }
    simd_dispatch<KeepBits>(rows_of(scores, run.row + done, count),
                            static_cast<const std::uint32_t*>(words), static_cast<int>(bit % 32));
    done += count;
  }
}

}  // namespace

void apply_masks(const KvTile& kv_tile, const BlockMaskView* mask, const Band& band,
                 const QTile& q_tile, const Scores& scores) {
  for (std::int64_t i = 0; i < kv_tile.num_runs; ++i) {
    const KvRun& run = kv_tile.runs[i];
    if (run.cut_by_band) apply_band(run, band, q_tile, scores);
    if (run.bitmap >= 0) apply_bitmap(run, *mask, q_tile, scores);
  }
}

bool online_softmax(const Scores& scores, const SoftmaxState& state) {
  bool rescales = false;
  simd_dispatch<OnlineSoftmax>(scores, state, &rescales);
  return rescales;
}

void scale_columns(float* data, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                   const float* factors) {
  simd_dispatch<ScaleColumns>(data, rows, cols, ld, factors);
}

void normalise(const Scores& scores, const float* max, const float* factors) {
  simd_dispatch<Normalise>(scores, max, factors);
}

}  // namespace sparsek::attn::cpu
