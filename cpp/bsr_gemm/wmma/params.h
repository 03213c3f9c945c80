#pragma once

#include <cstdint>

namespace sparsek::bsr::wmma {

/// The lists of a block-sparse matrix, as they stand.
struct Structure {
  const std::int64_t* row_offsets = nullptr;
  const std::int32_t* col_indices = nullptr;
  const std::int32_t* value_indices = nullptr;
  std::int64_t nnz = 0;
  std::int64_t num_block_rows = 0;
  std::int64_t num_block_cols = 0;
};

/// The left or the right operand; strides in elements.
struct Operand {
  const void* data = nullptr;
  std::int64_t block_stride = 0;  // of block-sparse values
  std::int64_t free_stride = 0;   // of rows (left), of columns (right)
  std::int64_t k_stride = 0;
  std::int64_t extent = 0;  // of the free axis
  std::int32_t block = 0;   // of the free axis; 0: dense
  bool k_inner = true;      // k is the contiguous axis, else the free one
  bool vectors = false;     // 16 bytes can be read at once along it
};

struct Result {
  void* data = nullptr;
  std::int64_t block_stride = 0;  // of block-sparse values
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

/// How the blocks that a tile multiplies are found.
enum class Walk : std::uint8_t {
  row,        // the left operand's list, against a dense right operand
  column,     // the left operand is a transposed matrix: its list is a column of `lists`
  row_match,  // the left operand's list, and what the right operand has in the same k blocks
  all,        // every k: dense x dense
};

/// left (rows, k) times right (k, cols).
struct Params {
  Operand left;
  Operand right;
  Result out;
  Result c;
  Structure lists;        // of the left operand
  Structure right_lists;  // row_match
  Structure out_lists;    // a sampled result's
  Walk walk = Walk::row;
  bool sampled = false;
  bool transposed = false;  // of a sampled result: rows are its columns
  bool wide_out = false;    // float32
  std::int32_t block_k = 0;
  std::int64_t k = 0;
  std::uint32_t row_parts = 1;  // tiles that a block's rows are cut into
  std::uint32_t col_parts = 1;
  std::uint32_t row_tiles = 0;
  std::uint32_t col_tiles = 0;
  std::uint32_t num_tiles = 0;
  std::int32_t run = 1;  // a power of two: tiles for a CTA, beside each other, if the list is short
  float alpha = 1;
  float beta = 0;
};

}  // namespace sparsek::bsr::wmma
