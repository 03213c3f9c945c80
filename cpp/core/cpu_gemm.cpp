#include "core/cpu_gemm.h"

#include <algorithm>

#include "core/simd.h"

namespace sparsek {
namespace {

/// The left operand from some row and column on.
struct Left {
  const float* data;
  std::int64_t row_stride;
  std::int64_t col_stride;

  SPARSEK_INLINE Left rows_from(std::int64_t row) const {
    return {data + row * row_stride, row_stride, col_stride};
  }
  SPARSEK_INLINE Left cols_from(std::int64_t col) const {
    return {data + col * col_stride, row_stride, col_stride};
  }
};

/// Rows of c that the micro-kernel keeps in registers, beside two vectors of columns.
template <int kWidth>
constexpr int kTileRows = kWidth == 16  ? 8
                          : kWidth == 8 ? 6
                                        : 4;

/// k is summed in stretches of this length, and those sums added: the rounding error of one long
/// sum grows with k.
constexpr std::int64_t kStretch = 128;

/// kRows x (kVectors * kWidth) elements of c, held in registers over a stretch of k.
template <int kWidth, int kRows, int kVectors>
SPARSEK_INLINE void multiply_tile(std::int64_t k, Left a, const float* b, std::int64_t ldb,
                                  float* c, std::int64_t ldc, bool accumulate) {
  using Float = typename Simd<kWidth>::Float;
  Float sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sum[row][v] = Float{};
    }
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Float columns[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) columns[v] = load<Float>(b + v * kWidth);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float factor = a.data[row * a.row_stride];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[row][v] += factor * columns[v];
    }
    a.data += a.col_stride;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + row * ldc + v * kWidth;
      store(to, accumulate ? load<Float>(to) + sum[row][v] : sum[row][v]);
    }
  }
}

/// The last rows, fewer than a whole tile.
template <int kWidth, int kRows, int kVectors>
SPARSEK_INLINE void multiply_last_rows(std::int64_t rows, std::int64_t k, Left a, const float* b,
                                       std::int64_t ldb, float* c, std::int64_t ldc,
                                       bool accumulate) {
  if (rows == kRows) {
    multiply_tile<kWidth, kRows, kVectors>(k, a, b, ldb, c, ldc, accumulate);
  } else if constexpr (kRows > 1) {
    multiply_last_rows<kWidth, kRows - 1, kVectors>(rows, k, a, b, ldb, c, ldc, accumulate);
  }
}

/// All m rows of kVectors * kWidth columns.
template <int kWidth, int kVectors>
SPARSEK_INLINE void multiply_columns(std::int64_t m, std::int64_t k, Left a, const float* b,
                                     std::int64_t ldb, float* c, std::int64_t ldc,
                                     bool accumulate) {
  constexpr int kRows = kTileRows<kWidth>;
  std::int64_t row = 0;
  for (; row + kRows <= m; row += kRows) {
    multiply_tile<kWidth, kRows, kVectors>(k, a.rows_from(row), b, ldb, c + row * ldc, ldc,
                                           accumulate);
  }
  if (row < m) {
    multiply_last_rows<kWidth, kRows - 1, kVectors>(m - row, k, a.rows_from(row), b, ldb,
                                                    c + row * ldc, ldc, accumulate);
  }
}

/// The last columns, fewer than a vector: through copies, so as not to touch what lies beyond them.
template <int kWidth>
SPARSEK_INLINE void multiply_last_columns(std::int64_t m, std::int64_t cols, std::int64_t k, Left a,
                                          const float* b, std::int64_t ldb, float* c,
                                          std::int64_t ldc, bool accumulate) {
  constexpr int kRows = kTileRows<kWidth>;
  float b_copy[kStretch * kWidth];
  float c_copy[kRows * kWidth] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    for (int col = 0; col < kWidth; ++col) {
      b_copy[i * kWidth + col] = col < cols ? b[i * ldb + col] : 0.0f;
    }
  }
  for (std::int64_t row = 0; row < m; row += kRows) {
    const std::int64_t rows = std::min<std::int64_t>(kRows, m - row);
    for (std::int64_t i = 0; accumulate && i < rows; ++i) {
      for (int col = 0; col < cols; ++col) c_copy[i * kWidth + col] = c[(row + i) * ldc + col];
    }
    multiply_last_rows<kWidth, kRows, 1>(rows, k, a.rows_from(row), b_copy, kWidth, c_copy, kWidth,
                                         accumulate);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int col = 0; col < cols; ++col) c[(row + i) * ldc + col] = c_copy[i * kWidth + col];
    }
  }
}

struct Gemm {
  template <int kWidth>
  SPARSEK_INLINE static void run(std::int64_t m, std::int64_t n, std::int64_t k, Left a,
                                 const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                                 bool accumulate) {
    // Columns outside, rows inside: the panel of b stays in the nearest cache while a streams past.
    std::int64_t col = 0;
    for (; col + 2 * kWidth <= n; col += 2 * kWidth) {
      multiply_columns<kWidth, 2>(m, k, a, b + col, ldb, c + col, ldc, accumulate);
    }
    for (; col + kWidth <= n; col += kWidth) {
      multiply_columns<kWidth, 1>(m, k, a, b + col, ldb, c + col, ldc, accumulate);
    }
    if (col < n) {
      multiply_last_columns<kWidth>(m, n - col, k, a, b + col, ldb, c + col, ldc, accumulate);
    }
  }
};

}  // namespace

void cpu_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
              std::int64_t a_row_stride, std::int64_t a_col_stride, const float* b,
              std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate) {
  const Left left{a, a_row_stride, a_col_stride};
  for (std::int64_t p = 0; p == 0 || p < k; p += kStretch) {
    simd_dispatch<Gemm>(m, n, std::min(kStretch, k - p), left.cols_from(p), b + p * ldb, ldb, c,
                        ldc, accumulate || p > 0);
  }
}

}  // namespace sparsek
