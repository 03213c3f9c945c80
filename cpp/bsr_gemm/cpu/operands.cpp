#include "bsr_gemm/cpu/operands.h"

#include <algorithm>

namespace sparsek::bsr::cpu {

MatrixRef matrix_ref(const TensorView& dense) {
  return {dense.data,     dense.dtype,     dense.shape[0],
          dense.shape[1], dense.stride[0], dense.stride[1]};
}

EntryRange block_row(const BsrMatrixView& matrix, std::int64_t row) {
  return {std::max<std::int64_t>(matrix.row_offsets[row], 0),
          std::min(matrix.row_offsets[row + 1], matrix.nnz())};
}

std::int64_t block_col(const BsrMatrixView& matrix, std::int64_t entry) {
  const std::int64_t col = matrix.col_indices[entry];
  return col >= 0 && col < matrix.num_block_cols() ? col : -1;
}

bool block_values(const BsrMatrixView& matrix, std::int64_t entry, MatrixRef* block) {
  const TensorView& values = matrix.values;
  const std::int64_t index = matrix.value_indices == nullptr ? entry : matrix.value_indices[entry];
  if (index < 0 || index >= matrix.nnz()) return false;
  const auto bytes = static_cast<std::int64_t>(size_of(values.dtype));
  *block = {static_cast<char*>(values.data) + index * values.stride[0] * bytes,
            values.dtype,
            matrix.block_rows(),
            matrix.block_cols(),
            values.stride[1],
            values.stride[2]};
  return true;
}

Left as_left(const MatrixRef& matrix, bool copy, FloatBuffer* buffer) {
  if (!copy && matrix.dtype == DType::float32) {
    return {static_cast<const float*>(matrix.data), matrix.row_stride, matrix.col_stride};
  }
  const bool by_columns = !matrix.rows_contiguous() && matrix.row_stride == 1;
  const MatrixRef rows = by_columns ? matrix.transposed() : matrix;
  const std::int64_t ld = padded_row(rows.cols);
  float* const data = buffer->reserve(rows.rows * ld);
  load_matrix(rows, data, ld);
  return by_columns ? Left{data, 1, ld} : Left{data, ld, 1};
}

Right as_right(const MatrixRef& matrix, bool copy, FloatBuffer* buffer) {
  if (!copy && matrix.dtype == DType::float32 && matrix.rows_contiguous()) {
    return {static_cast<const float*>(matrix.data), matrix.row_stride};
  }
  const std::int64_t ld = padded_row(matrix.cols);
  float* const data = buffer->reserve(matrix.rows * ld);
  load_matrix(matrix, data, ld);
  return {data, ld};
}

void write_result(float* sum, std::int64_t ld, const MatrixRef& out, float alpha,
                  const MatrixRef* c, float beta) {
  constexpr std::int64_t kCols = 256;
  float addend[kCols];
  for (std::int64_t row = 0; row < out.rows; ++row) {
    for (std::int64_t col = 0; col < out.cols; col += kCols) {
      const std::int64_t cols = std::min(kCols, out.cols - col);
      float* const part = sum + row * ld + col;
      for (std::int64_t i = 0; i < cols; ++i) part[i] *= alpha;
      if (c != nullptr) {
        load_matrix(c->part(row, col, 1, cols), addend, cols);
        for (std::int64_t i = 0; i < cols; ++i) part[i] += beta * addend[i];
      }
      store_matrix(part, ld, out.part(row, col, 1, cols));
    }
  }
}

}  // namespace sparsek::bsr::cpu
