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

constexpr std::int32_t kDealt = -1;  // in place of all of a schedule's begins: there is none

/// Which tiles each worker (a persistent CTA) takes, of the first `panels` panels of
/// columns; then the same of the next ones. A tile is panel * num_groups + rank.
struct Schedule {
  const std::int32_t* begins;  // of each worker, and behind them the last one's end
  const std::int32_t* tiles;
  std::int32_t workers;  // 0: none, tiles are dealt
  std::int32_t panels;
};

/// Block lists of groups of block rows. An entry is a k block that some row of the group has:
/// cols[entry], ascending in a group, and in values[entry * rows_in_group + r] the block that row r
/// of the group has there, or -1.
struct Lists {
  const RowGroup* groups;      // longest first
  const std::int64_t* begins;  // of each group in its own order, and behind them the last one's end
  const std::uint32_t* bits;   // bit_words each, as `groups`: bit k is set where it has k block k
  const std::int32_t* cols;
  const std::int32_t* values;
  const std::int32_t* rows;  // the block row at each place of the groups; null: in order
  std::int32_t num_groups;
  std::int32_t bit_words;
  Schedule schedule;
};

struct Matrix {
  void* data;
  std::int64_t sparse_stride;  // of the axis that runs along the rows of the sparse operand
  std::int64_t dense_stride;
};

/// Where alpha * product + beta * c goes.
struct Result {
  Matrix out;
  Matrix c;
  float alpha;
  float beta;
  bool wide_out;    // float32
  bool rows_inner;  // whether the kernel's rows are contiguous in out
  bool aligned;     // out takes 16-byte stores
  bool c_aligned;   // c has its contiguous axis where out has it, and takes 16-byte loads
};

struct Params {
  CUtensorMap sparse_map;
  CUtensorMap dense_map;
  // Of short tiles, which begin at last_col and beyond and have last_cols columns: those that the
  // result ends in, or narrower panels.
  CUtensorMap last_dense_map;
  std::int32_t last_col = -1;  // none
  std::int32_t last_cols = 0;
  Lists lists;
  // A line of sparse_map holds two rows of a block. TMA swizzles it over 128 bytes, which among
  // rows of 64 bytes leaves the odd rows of each second eight where the even ones are looked for,
  // and the other way round (in_folded_order).
  bool folded;
  const void* sparse_values;          // for what does not go by TMA
  std::uint32_t sparse_block_stride;  // in units of 16 bytes
  std::uint32_t sparse_line_stride;   // the same, of the axis that is not contiguous
  int log2_block_rows;
  int log2_block_k;
  std::int32_t absent_col;  // a k block beyond the last one
  bool dense_in_chunks;     // dense_map is (64, k, columns / 64), one box for all columns of a tile
  std::int32_t rows;        // of the result, along the sparse operand
  std::int32_t cols;        // along the dense operand
  std::int32_t num_tiles;
  // Where tiles are dealt. More than num_tiles: those from last_col on are of narrower panels.
  std::int32_t dealt_tiles;
  // So many panels are walked 1 << log2_abreast at a time, those behind them one after the other.
  std::int32_t panels_abreast;
  int log2_abreast;
  // Where CTAs take tiles of two sparse operands as they get ready: the next one. Null: each CTA
  // has one.
  std::int32_t* next_tile;
  int log2_split;  // of the CTAs, those of a cluster, that share the walk over k of a tile
  // Where both operands are sparse: those of the second one, which lies along the columns, and how
  // many of its groups are finished before the next ones.
  Lists col_lists;
  std::int32_t panel_groups;
  int log2_block_cols;
  Result result;
  // Where one row may take longer than a worker's share: for each stretch (stretches.h) the sums of
  // the tile that it does not begin, and for each warp group whether they are there. Null: none.
  float* sums;
  std::uint32_t* sums_ready;
};

/// Dense x dense at the blocks of a pattern, or all of it: then there are no lists.
struct SampledParams {
  CUtensorMap row_map;  // of the operand along the pattern's rows
  CUtensorMap col_map;
  bool whole;
  std::int32_t rows, cols;
  Lists lists;  // of the pattern
  int log2_block_rows;
  int log2_block_cols;      // in a whole result those of half a tile
  std::int32_t steps;       // K tiles
  std::int32_t most_parts;  // CTAs that may share a tile
  float* sums;              // of each CTA's part
  std::int64_t out_block_stride;
  std::int64_t c_block_stride;
  Result result;  // of a block
};

}  // namespace sparsek::bsr::sm90
