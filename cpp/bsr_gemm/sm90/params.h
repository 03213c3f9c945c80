#pragma once

#include <cuda.h>

#include <cstdint>

namespace sparsek::bsr::sm90 {

/// The merged list of a group of block rows.
struct alignas(16) RowGroup {
  std::int64_t begin;   // first entry
  std::int32_t length;  // entries
  std::int32_t index;   // which group of rows
};

/// Block lists of groups of block rows. An entry is a k block that some row of the group has:
/// cols[entry], ascending in a group, and in values[entry * rows_in_group + r] the block that row r
/// of the group has there, or -1.
struct Lists {
  const RowGroup* groups;  // longest first
  const std::int32_t* cols;
  const std::int32_t* values;
  std::int32_t num_groups;
};

struct Matrix {
  void* data;
  std::int64_t sparse_stride;  // of the axis that runs along the rows of the sparse operand
  std::int64_t dense_stride;
};

struct Params {
  CUtensorMap sparse_map;
  CUtensorMap dense_map;
  Lists lists;
  const void* sparse_values;         // for what does not go by TMA
  std::int64_t sparse_block_stride;  // in elements
  std::int64_t sparse_line_stride;   // of the axis that is not contiguous
  int log2_block_rows;
  int log2_block_k;
  std::int32_t absent_col;  // a k block beyond the last one
  bool dense_in_chunks;     // dense_map is (64, k, columns / 64), one box for all columns of a tile
  std::int32_t rows;        // of the result, along the sparse operand
  std::int32_t cols;        // along the dense operand
  std::int32_t num_tiles;
  Matrix out;
  Matrix c;
  float alpha;
  float beta;
  bool wide_out;    // float32
  bool rows_inner;  // whether the sparse operand's rows are contiguous in out
  bool aligned;     // out takes 16-byte stores
};

}  // namespace sparsek::bsr::sm90
