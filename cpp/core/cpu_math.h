#pragma once

#include <cstdint>

#include "sparsek/types.h"

namespace sparsek {

/// Contiguous elements of float16, bfloat16 or float32 to float32; exact.
void to_float32(const void* from, DType dtype, float* to, std::int64_t count);

/// float32 to contiguous elements: to nearest, ties to even; too large becomes infinity; a NaN
/// stays one.
void from_float32(const float* from, void* to, DType dtype, std::int64_t count);

/// y[i] = 2^x[i] for x up to 127, relative error below 2e-7; 0 below 2^-126, 2^-inf included. May
/// be in place.
void exp2(const float* x, float* y, std::int64_t count);

/// False when there is an infinity or a NaN among rows x cols elements.
bool all_finite(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t ld);

/// A matrix of any strides (in elements) in somebody else's memory.
struct MatrixRef {
  void* data = nullptr;
  DType dtype = DType::float32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;

  void* at(std::int64_t row, std::int64_t col) const {
    const std::int64_t offset = row * row_stride + col * col_stride;
    return static_cast<char*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
  }
  MatrixRef part(std::int64_t row, std::int64_t col, std::int64_t num_rows,
                 std::int64_t num_cols) const {
    return {at(row, col), dtype, num_rows, num_cols, row_stride, col_stride};
  }
  MatrixRef transposed() const { return {data, dtype, cols, rows, col_stride, row_stride}; }
  bool rows_contiguous() const { return col_stride == 1; }
};

/// To float32 rows, `ld` apart.
void load_matrix(const MatrixRef& from, float* to, std::int64_t ld);

/// From float32 rows, `ld` apart.
void store_matrix(const float* from, std::int64_t ld, const MatrixRef& to);

}  // namespace sparsek
