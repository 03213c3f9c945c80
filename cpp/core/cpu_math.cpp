#include "core/cpu_math.h"

#include <algorithm>
#include <cstring>

#include "core/simd.h"
#include "core/simd_math.h"

namespace sparsek {
namespace {

// One vector of bit patterns each way. No float instruction sees a subnormal, which would be slow,
// or zero where the process has told the CPU to flush them.

struct Float16 {
  template <int kWidth>
  SPARSEK_INLINE static typename Simd<kWidth>::Uint widen(const typename Simd<kWidth>::Uint& half) {
    using Uint = typename Simd<kWidth>::Uint;
    using Float = typename Simd<kWidth>::Float;
    const Uint magnitude = (half & 0x7fff) << 13;
    const Uint normal = magnitude + (112u << 23);
    // A subnormal m * 2^-24: put m below the leading 1 of 2^-14, then take that 1 away.
    const Uint offset = Uint{} + (113u << 23);
    const Uint subnormal =
        bits_as<Uint>(bits_as<Float>(magnitude + offset) - bits_as<Float>(offset));
    Uint bits = magnitude < (1u << 23) ? subnormal : normal;
    bits = magnitude >= (31u << 23) ? magnitude | (255u << 23) : bits;
    return bits | ((half & 0x8000) << 16);
  }

  template <int kWidth>
  SPARSEK_INLINE static typename Simd<kWidth>::Uint narrow(
      const typename Simd<kWidth>::Uint& bits) {
    using Uint = typename Simd<kWidth>::Uint;
    using Float = typename Simd<kWidth>::Float;
    const Uint magnitude = bits & 0x7fffffff;
    // Normal: round on bit 13, ties to even; a carry runs into the exponent, up to infinity, as it
    // should.
    const Uint normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Below 2^-14: adding 1/2 lets the float adder round to a multiple of 2^-24.
    const Uint half = Uint{} + (126u << 23);
    const Uint small = magnitude < (113u << 23) ? magnitude : Uint{};
    const Uint subnormal = bits_as<Uint>(bits_as<Float>(small) + bits_as<Float>(half)) - half;
    Uint result = magnitude < (113u << 23) ? subnormal : normal;
    result = magnitude >= (143u << 23) ? Uint{} + 0x7c00 : result;
    result = magnitude > (255u << 23) ? Uint{} + 0x7e00 : result;
    return result | ((bits >> 16) & 0x8000);
  }
};

struct Bfloat16 {
  template <int kWidth>
  SPARSEK_INLINE static typename Simd<kWidth>::Uint widen(const typename Simd<kWidth>::Uint& half) {
    return half << 16;
  }

  template <int kWidth>
  SPARSEK_INLINE static typename Simd<kWidth>::Uint narrow(
      const typename Simd<kWidth>::Uint& bits) {
    using Uint = typename Simd<kWidth>::Uint;
    const Uint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry a NaN into infinity.
    return (bits & 0x7fffffff) > (255u << 23) ? (bits >> 16) | 0x40 : rounded;
  }
};

template <class Format>
struct Widen {
  template <int kWidth>
  SPARSEK_INLINE static void run(const std::uint16_t* from, float* to, std::int64_t count) {
    using Vectors = Simd<kWidth>;
    using Half = typename Vectors::Half;
    using Uint = typename Vectors::Uint;
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) {
      const Uint half = __builtin_convertvector(load<Half>(from + i), Uint);
      store(to + i, Format::template widen<kWidth>(half));
    }
    if (i == count) return;
    std::uint16_t last[kWidth] = {};
    for (int j = 0; j < count - i; ++j) last[j] = from[i + j];
    const Uint half = __builtin_convertvector(load<Half>(last), Uint);
    const Uint bits = Format::template widen<kWidth>(half);
    for (int j = 0; j < count - i; ++j) to[i + j] = bits_as<float>(bits[j]);
  }
};

template <class Format>
struct Narrow {
  template <int kWidth>
  SPARSEK_INLINE static void run(const float* from, std::uint16_t* to, std::int64_t count) {
    using Vectors = Simd<kWidth>;
    using Half = typename Vectors::Half;
    using Uint = typename Vectors::Uint;
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) {
      const Uint half = Format::template narrow<kWidth>(load<Uint>(from + i));
      store(to + i, __builtin_convertvector(half, Half));
    }
    if (i == count) return;
    float last[kWidth] = {};
    for (int j = 0; j < count - i; ++j) last[j] = from[i + j];
    const Uint half = Format::template narrow<kWidth>(load<Uint>(last));
    for (int j = 0; j < count - i; ++j) to[i + j] = static_cast<std::uint16_t>(half[j]);
  }
};

struct Exp2 {
  template <int kWidth>
  SPARSEK_INLINE static void run(const float* x, float* y, std::int64_t count) {
    using Float = typename Simd<kWidth>::Float;
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) store(y + i, exp2<kWidth>(load<Float>(x + i)));
    if (i == count) return;
    float last[kWidth] = {};
    for (int j = 0; j < count - i; ++j) last[j] = x[i + j];
    const Float powers = exp2<kWidth>(load<Float>(last));
    for (int j = 0; j < count - i; ++j) y[i + j] = powers[j];
  }
};

struct AllFinite {
  template <int kWidth>
  SPARSEK_INLINE static void run(const float* x, std::int64_t rows, std::int64_t cols,
                                 std::int64_t ld, bool* finite) {
    using Float = typename Simd<kWidth>::Float;
    Float sum{};  // stays 0 until an infinity or a NaN comes
    float last = 0;
    for (std::int64_t row = 0; row < rows; ++row, x += ld) {
      std::int64_t i = 0;
      for (; i + kWidth <= cols; i += kWidth) sum += load<Float>(x + i) * 0.0f;
      for (; i < cols; ++i) last += x[i] * 0.0f;
    }
    for (int lane = 0; lane < kWidth; ++lane) last += sum[lane];
    *finite = last == 0;
  }
};

// Elements that a strided copy handles at a time, on the stack.
constexpr std::int64_t kChunk = 64;

/// Contiguous elements of `from`, strided ones of `to`.
template <class Element>
void scatter(const Element* from, void* to, std::int64_t stride, std::int64_t count) {
  Element* const elements = static_cast<Element*>(to);
  for (std::int64_t i = 0; i < count; ++i) elements[i * stride] = from[i];
}

template <class Element>
void gather(const void* from, std::int64_t stride, Element* to, std::int64_t count) {
  const Element* const elements = static_cast<const Element*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = elements[i * stride];
}

/// Up to kChunk elements of any stride.
void load_strided(const void* from, DType dtype, std::int64_t stride, float* to,
                  std::int64_t count) {
  if (stride == 1) return to_float32(from, dtype, to, count);
  if (dtype == DType::float32) return gather(from, stride, to, count);
  std::uint16_t halves[kChunk];
  gather(from, stride, halves, count);
  to_float32(halves, dtype, to, count);
}

/// Columns of `from` lie along memory: read them so, 16 at a time, and turn the tile around.
void load_transposing(const MatrixRef& from, float* to, std::int64_t ld) {
  constexpr std::int64_t kCols = 16;
  float tile[kCols][kChunk];
  for (std::int64_t row = 0; row < from.rows; row += kChunk) {
    const std::int64_t rows = std::min(kChunk, from.rows - row);
    for (std::int64_t col = 0; col < from.cols; col += kCols) {
      const std::int64_t cols = std::min(kCols, from.cols - col);
      for (std::int64_t j = 0; j < cols; ++j) {
        load_strided(from.at(row, col + j), from.dtype, from.row_stride, tile[j], rows);
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        float* const out = to + (row + i) * ld + col;
        for (std::int64_t j = 0; j < cols; ++j) out[j] = tile[j][i];
      }
    }
  }
}

}  // namespace

void to_float32(const void* from, DType dtype, float* to, std::int64_t count) {
  if (dtype == DType::float32) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (dtype == DType::float16) {
    simd_dispatch<Widen<Float16>>(static_cast<const std::uint16_t*>(from), to, count);
  } else {
    simd_dispatch<Widen<Bfloat16>>(static_cast<const std::uint16_t*>(from), to, count);
  }
}

void from_float32(const float* from, void* to, DType dtype, std::int64_t count) {
  if (dtype == DType::float32) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (dtype == DType::float16) {
    simd_dispatch<Narrow<Float16>>(from, static_cast<std::uint16_t*>(to), count);
  } else {
    simd_dispatch<Narrow<Bfloat16>>(from, static_cast<std::uint16_t*>(to), count);
  }
}

void exp2(const float* x, float* y, std::int64_t count) { simd_dispatch<Exp2>(x, y, count); }

bool all_finite(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  bool finite = true;
  simd_dispatch<AllFinite>(x, rows, cols, ld, &finite);
  return finite;
}

void load_matrix(const MatrixRef& from, float* to, std::int64_t ld) {
  if (!from.rows_contiguous()) return load_transposing(from, to, ld);
  for (std::int64_t row = 0; row < from.rows; ++row) {
    to_float32(from.at(row, 0), from.dtype, to + row * ld, from.cols);
  }
}

void store_matrix(const float* from, std::int64_t ld, const MatrixRef& to) {
  for (std::int64_t row = 0; row < to.rows; ++row, from += ld) {
    if (to.rows_contiguous()) {
      from_float32(from, to.at(row, 0), to.dtype, to.cols);
      continue;
    }
    for (std::int64_t col = 0; col < to.cols; col += kChunk) {
      const std::int64_t count = std::min(kChunk, to.cols - col);
      if (to.dtype == DType::float32) {
        scatter(from + col, to.at(row, col), to.col_stride, count);
      } else {
        std::uint16_t halves[kChunk];
        from_float32(from + col, halves, to.dtype, count);
        scatter(halves, to.at(row, col), to.col_stride, count);
      }
    }
  }
}

}  // namespace sparsek
