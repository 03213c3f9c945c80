#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check.h"
#include "core/cpu_math.h"
#include "random_array.h"

using namespace sparsek;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// The value of a 16-bit pattern, from the definition of the format.
double value_of(DType dtype, std::uint16_t half) {
  const int mantissa_bits = dtype == DType::float16 ? 10 : 7;
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (half & 0x7fff) >> mantissa_bits;
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// All 65536 patterns: to float32 and back, and midpoints between neighbours round to even.
void test_every_half(DType dtype) {
  std::vector<std::uint16_t> halves(65536), back(65536);
  for (int i = 0; i < 65536; ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(65536);
  to_float32(halves.data(), dtype, floats.data(), 65536);
  from_float32(floats.data(), back.data(), dtype, 65536);
  for (int i = 0; i < 65536; ++i) {
    const double expected = value_of(dtype, halves[i]);
    if (std::isnan(expected)) {
      CHECK(std::isnan(floats[i]), i);
      CHECK(std::isnan(value_of(dtype, back[i])), i, back[i]);
    } else {
      CHECK(floats[i] == expected && std::signbit(floats[i]) == std::signbit(expected), i,
            floats[i]);
      CHECK_EQ(back[i], halves[i]);
    }
  }
  const int infinity = dtype == DType::float16 ? 0x7c00 : 0x7f80;
  std::vector<float> midpoints, above;
  for (int i = 0; i + 1 < infinity; ++i) {
    midpoints.push_back(static_cast<float>((value_of(dtype, i) + value_of(dtype, i + 1)) / 2));
    above.push_back(std::nextafter(midpoints.back(), kInf));
  }
  const auto count = static_cast<std::int64_t>(midpoints.size());
  from_float32(midpoints.data(), back.data(), dtype, count);
  for (int i = 0; i < count; ++i) CHECK_EQ(int(back[i]), i + i % 2, midpoints[i]);
  from_float32(above.data(), back.data(), dtype, count);
  for (int i = 0; i < count; ++i) CHECK_EQ(int(back[i]), i + 1, above[i]);
}

void test_narrowing_edges() {
  const std::vector<float> from = {
      kInf,     -kInf,     65504,  65519.996f, 65520,
      1e30f,    -1e30f,    1e-30f, -0.0f,      std::numeric_limits<float>::denorm_min(),
      0x1p-25f, 0x1.8p-25f};
  const std::vector<std::uint16_t> expected = {0x7c00, 0xfc00, 0x7bff, 0x7bff, 0x7c00, 0x7c00,
                                               0xfc00, 0,      0x8000, 0,      0,      1};
  std::vector<std::uint16_t> to(from.size());
  from_float32(from.data(), to.data(), DType::float16, static_cast<std::int64_t>(from.size()));
  for (std::size_t i = 0; i < from.size(); ++i) CHECK_EQ(to[i], expected[i], from[i]);

  // NaNs whose payload lies in the bits that are dropped.
  for (const std::uint32_t bits : {0x7f800001u, 0xffffffffu, 0x7fffffffu}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof nan);
    std::uint16_t half;
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      from_float32(&nan, &half, dtype, 1);
      CHECK(std::isnan(value_of(dtype, half)), bits, half);
    }
  }
  const float largest = std::numeric_limits<float>::max();
  std::uint16_t half;
  from_float32(&largest, &half, DType::bfloat16, 1);
  CHECK_EQ(half, 0x7f80);
}

void test_exp2() {
  std::vector<float> x;
  for (double value = -125.99; value < 127; value += 0.000731)
    x.push_back(static_cast<float>(value));
  std::vector<float> y(x.size(), kPoison);
  exp2(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::abs(y[i] / std::exp2(static_cast<double>(x[i])) - 1));
  }
  CHECK(worst < 2e-7, worst);

  std::vector<float> edges = {0.0f,    -0.0f,  1.0f,  -1.0f, 127.0f, -126.0f,
                              -127.0f, -1e30f, -kInf, kNan,  3.0f};
  exp2(edges.data(), edges.data(), static_cast<std::int64_t>(edges.size()));  // in place
  const std::vector<float> expected = {1, 1, 2, 0.5f, 0x1p127f, 0x1p-126f, 0, 0, 0, kNan, 8};
  for (std::size_t i = 0; i < edges.size(); ++i) {
    CHECK(std::isnan(expected[i]) ? std::isnan(edges[i]) : edges[i] == expected[i], i, edges[i]);
  }
}

void test_all_finite() {
  for (std::int64_t cols = 1; cols < 40; ++cols) {
    const std::int64_t rows = 3, ld = cols + 2;
    std::vector<float> x(static_cast<std::size_t>(rows * ld), kNan);  // between the rows too
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) x[row * ld + col] = 1e38f;
    }
    CHECK(all_finite(x.data(), rows, cols, ld), cols);
    const std::int64_t place = random_int(0, rows - 1) * ld + random_int(0, cols - 1);
    for (const float bad : {kInf, -kInf, kNan}) {
      x[place] = bad;
      CHECK(!all_finite(x.data(), rows, cols, ld), cols, place, bad);
    }
  }
}

/// Any strides, any dtype, nothing outside of the matrix written.
void test_matrices() {
  const std::int64_t sizes[] = {1, 2, 7, 16, 33, 100};
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (const std::int64_t rows : sizes) {
      for (const std::int64_t cols : sizes) {
        const std::int64_t strides[][2] = {
            {cols + 3, 1}, {1, rows + 3}, {2 * cols + 1, 2}, {-cols, 1}};
        for (const auto& stride : strides) {
          const std::int64_t size = 2 * (rows + 4) * (cols + 4);
          Array memory(dtype, random_floats(size));
          const std::vector<float> before = memory.floats();
          const std::int64_t first = stride[0] < 0 ? (rows - 1) * cols : 0;
          MatrixRef ref{memory.data(), dtype, rows, cols, stride[0], stride[1]};
          ref.data =
              static_cast<char*>(ref.data) + first * static_cast<std::int64_t>(size_of(dtype));
          const auto place = [&](std::int64_t i, std::int64_t j) {
            return static_cast<std::size_t>(first + i * stride[0] + j * stride[1]);
          };
          const std::int64_t ld = cols + 5;
          std::vector<float> rows_read(static_cast<std::size_t>(rows * ld), 77.0f);
          load_matrix(ref, rows_read.data(), ld);
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < ld; ++j) {
              const float expected = j < cols ? before[place(i, j)] : 77.0f;
              CHECK_EQ(rows_read[i * ld + j], expected, rows, cols, stride[0], i, j);
            }
          }
          std::vector<float> expected = before;
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < cols; ++j) {
              rows_read[i * ld + j] = static_cast<float>(i - j);
              expected[place(i, j)] = static_cast<float>(i - j);
            }
          }
          store_matrix(rows_read.data(), ld, ref);
          const std::vector<float> after = memory.floats();
          for (std::size_t i = 0; i < after.size(); ++i) {
            CHECK_EQ(bits_of(after[i]), bits_of(expected[i]), rows, cols, stride[0], i);
          }
        }
      }
    }
  }
}

}  // namespace

int main() {
  test_every_half(DType::float16);
  test_every_half(DType::bfloat16);
  test_narrowing_edges();
  test_exp2();
  test_all_finite();
  test_matrices();
  return failures() != 0;
}
