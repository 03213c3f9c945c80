#pragma once

#include <cstdint>

#include "sparsek/tensor.h"

namespace sparsek {

/// A block-sparse row matrix: block row i holds the blocks col_indices[row_offsets[i]] ... of
/// block_rows x block_cols values each.
///
/// values is (nnz, block_rows, block_cols) with any strides, so a transposed matrix shares the
/// values of the original: swap the last two axes, give the structure of the transpose, and let
/// `value_indices` say where each entry's block lies (null: entry e is block e).
///
/// rows and cols are multiples of the block shape. Indices out of range count as absent.
struct BsrMatrixView {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  TensorView values;                            // (nnz, block_rows, block_cols)
  const std::int64_t* row_offsets = nullptr;    // rows / block_rows + 1
  const std::int32_t* col_indices = nullptr;    // nnz
  const std::int32_t* value_indices = nullptr;  // nnz, or null

  std::int64_t nnz() const { return values.shape[0]; }
  std::int64_t block_rows() const { return values.shape[1]; }
  std::int64_t block_cols() const { return values.shape[2]; }
  std::int64_t num_block_rows() const { return rows / block_rows(); }
  std::int64_t num_block_cols() const { return cols / block_cols(); }
};

/// Reads the structure of a matrix in host memory; throws Error (invalid_value) for offsets that
/// decrease or pass nnz, a column index out of range, and a block listed twice in a row.
void check_bsr_matrix(const BsrMatrixView& matrix);

}  // namespace sparsek
