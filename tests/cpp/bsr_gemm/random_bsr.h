#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "random_array.h"
#include "sparsek/bsr_matrix.h"

/// A block-sparse matrix that owns its arrays.
struct OwnedBsr {
  sparsek::BsrMatrixView view;
  Array memory;
  std::vector<std::int64_t> row_offsets;
  std::vector<std::int32_t> col_indices, value_indices;

  OwnedBsr() = default;
  OwnedBsr(const OwnedBsr&) = delete;
};

struct BsrCase {
  sparsek::DType dtype = sparsek::DType::float32;
  std::int64_t rows = 0, cols = 0, block_rows = 1, block_cols = 1;
  double density = 0.4;
  bool transposed_values = false;  // each block column-major
  bool shuffled = false;           // through value_indices
};

inline void make_random_bsr(const BsrCase& c, OwnedBsr* matrix) {
  matrix->row_offsets.push_back(0);
  for (std::int64_t row = 0; row < c.rows / c.block_rows; ++row) {
    std::vector<std::int32_t> cols;
    for (std::int64_t col = 0; col < c.cols / c.block_cols; ++col) {
      if (random_bool(c.density)) cols.push_back(static_cast<std::int32_t>(col));
    }
    std::shuffle(cols.begin(), cols.end(), generator());
    matrix->col_indices.insert(matrix->col_indices.end(), cols.begin(), cols.end());
    matrix->row_offsets.push_back(static_cast<std::int64_t>(matrix->col_indices.size()));
  }
  const auto nnz = static_cast<std::int64_t>(matrix->col_indices.size());
  for (std::int64_t i = 0; i < nnz; ++i)
    matrix->value_indices.push_back(static_cast<std::int32_t>(i));
  std::shuffle(matrix->value_indices.begin(), matrix->value_indices.end(), generator());
  matrix->memory = Array(c.dtype, random_floats(nnz * c.block_rows * c.block_cols));

  sparsek::BsrMatrixView& view = matrix->view;
  view.rows = c.rows;
  view.cols = c.cols;
  view.values = sparsek::contiguous_view(matrix->memory.data(), c.dtype, {},
                                         {nnz, c.block_rows, c.block_cols});
  if (c.transposed_values) view.values.stride = {c.block_rows * c.block_cols, 1, c.block_rows};
  view.row_offsets = matrix->row_offsets.data();
  view.col_indices = matrix->col_indices.data();
  view.value_indices = c.shuffled ? matrix->value_indices.data() : nullptr;
}

/// The place of an element of entry `entry` in `memory`.
inline std::size_t value_place(const sparsek::BsrMatrixView& view, std::int64_t entry,
                               std::int64_t i, std::int64_t j) {
  const std::int64_t block = view.value_indices == nullptr ? entry : view.value_indices[entry];
  return static_cast<std::size_t>(block * view.values.stride[0] + i * view.values.stride[1] +
                                  j * view.values.stride[2]);
}

/// fn(row, col, place in memory) for every stored element.
template <class Fn>
void for_each_element(const OwnedBsr& matrix, const Fn& fn) {
  const sparsek::BsrMatrixView& view = matrix.view;
  for (std::int64_t row = 0; row < view.num_block_rows(); ++row) {
    for (std::int64_t entry = matrix.row_offsets[row]; entry < matrix.row_offsets[row + 1];
         ++entry) {
      for (std::int64_t i = 0; i < view.block_rows(); ++i) {
        for (std::int64_t j = 0; j < view.block_cols(); ++j) {
          fn(row * view.block_rows() + i, matrix.col_indices[entry] * view.block_cols() + j,
             value_place(view, entry, i, j));
        }
      }
    }
  }
}

inline std::vector<double> bsr_to_dense(const OwnedBsr& matrix) {
  std::vector<double> dense(static_cast<std::size_t>(matrix.view.rows * matrix.view.cols), 0.0);
  const std::vector<float> values = matrix.memory.floats();
  for_each_element(matrix, [&](std::int64_t row, std::int64_t col, std::size_t place) {
    dense[row * matrix.view.cols + col] = values[place];
  });
  return dense;
}
