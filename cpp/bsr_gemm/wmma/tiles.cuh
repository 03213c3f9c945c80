#pragma once

#include "bsr_gemm/wmma/config.h"
#include "bsr_gemm/wmma/params.h"

namespace sparsek::bsr::wmma {

constexpr int kAbsent = -1;

/// A rectangle of the result, inside one block where its rows or columns are cut into blocks.
struct Tile {
  std::int64_t row = 0;  // first one; inside its block where there are blocks
  std::int64_t col = 0;
  std::int64_t block_row = 0;  // of the left operand, or of a sampled result
  std::int64_t block_col = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;   // to the end of the run
  std::int64_t entry = 0;  // of a sampled result
};

struct EntryRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

__device__ inline EntryRange row_entries(const Structure& s, std::int64_t block_row) {
  const std::int64_t begin = max(s.row_offsets[block_row], std::int64_t{0});
  return {begin, min(s.row_offsets[block_row + 1], s.nnz)};
}

/// Where the values of an entry lie, or kAbsent for an index out of range.
__device__ inline std::int32_t value_of(const Structure& s, std::int64_t entry) {
  const std::int64_t value = s.value_indices != nullptr ? s.value_indices[entry] : entry;
  return value >= 0 && value < s.nnz ? static_cast<std::int32_t>(value) : kAbsent;
}

/// The values of the block at (block_row, block_col), or kAbsent. Of one listed twice (in unchecked
/// lists) the last.
__device__ inline std::int32_t find_block(const Structure& s, std::int64_t block_row,
                                          std::int64_t block_col) {
  const EntryRange range = row_entries(s, block_row);
  std::int64_t found = kAbsent;
  for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
    if (s.col_indices[entry] == block_col) found = entry;
  }
  return found == kAbsent ? kAbsent : value_of(s, found);
}

/// The row of a pattern that an entry belongs to: the last one that begins at or before it.
__device__ inline std::int64_t row_of_entry(const Structure& s, std::int64_t entry) {
  std::int64_t low = 0, high = s.num_block_rows;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (s.row_offsets[middle] <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Part `part` of a block's, or of the whole, axis.
__device__ inline void cut(const Operand& operand, std::uint32_t index, std::uint32_t parts,
                           std::int32_t tile, std::int64_t* block, std::int64_t* first,
                           std::int32_t* count) {
  std::int64_t extent = operand.extent;
  if (operand.block > 0) {
    *block = index / parts;
    index %= parts;
    extent = operand.block;
  }
  *first = std::int64_t{index} * tile;
  *count = static_cast<std::int32_t>(min(std::int64_t{tile}, extent - *first));
}

/// Where a CTA's tile stands among the columns. The first tiles of the runs come last: before them
/// those of long lists, which are no runs, so that the longest come first.
__device__ inline std::uint32_t col_place(const Params& p, std::uint32_t place) {
  const auto run = static_cast<std::uint32_t>(p.run);
  if (run == 1) return place;
  const std::uint32_t others = p.col_tiles - (p.col_tiles + run - 1) / run;
  if (place >= others) return (place - others) * run;
  return place / (run - 1) * run + 1 + place % (run - 1);
}

/// How many tiles beside each other one CTA multiplies.
__device__ inline std::int32_t run_of(const Params& p, std::int64_t block_row) {
  std::int32_t run = p.run;
  if (run == 1 || p.walk != Walk::row) return run;
  const EntryRange range = row_entries(p.lists, block_row);
  const std::int64_t k = (range.end - range.begin) * p.block_k;
  while (run > 1 && run * k > kRunK) run /= 2;
  return run;
}

/// False when there is nothing to compute. Divisions of 64 bits would take longer than a block.
template <class C>
__device__ inline bool find_tile(const Params& p, std::uint32_t index, Tile* tile) {
  if (!p.sampled) {
    const std::uint32_t place = index / p.row_tiles, row = index - place * p.row_tiles;
    const std::uint32_t col = col_place(p, place);
    cut(p.left, row, p.row_parts, C::kTileRows, &tile->block_row, &tile->row, &tile->rows);
    cut(p.right, col, p.col_parts, C::kTileCols, &tile->block_col, &tile->col, &tile->cols);
    if constexpr (C::kRuns) {
      const std::int32_t run = run_of(p, tile->block_row);
      if (run > 1) {
        tile->cols = static_cast<std::int32_t>(
            min(std::int64_t{run} * C::kTileCols, p.right.extent - tile->col));
      }
      return (col & (run - 1)) == 0;
    }
    return true;
  }
  const Structure& s = p.out_lists;
  const std::uint32_t parts = p.row_parts * p.col_parts;
  const std::int64_t entry = index / parts;
  const std::uint32_t part = index % parts;
  const std::int64_t block_row = row_of_entry(s, entry);
  const std::int64_t block_col = s.col_indices[entry];
  const EntryRange range = row_entries(s, block_row);
  tile->entry = value_of(s, entry);
  if (tile->entry == kAbsent || block_col < 0 || block_col >= s.num_block_cols ||
      entry < range.begin || entry >= range.end) {
    return false;
  }
  tile->block_row = p.transposed ? block_col : block_row;
  tile->block_col = p.transposed ? block_row : block_col;
  std::int64_t unused;
  cut(p.left, part / p.col_parts, p.row_parts, C::kTileRows, &unused, &tile->row, &tile->rows);
  cut(p.right, part % p.col_parts, p.col_parts, C::kTileCols, &unused, &tile->col, &tile->cols);
  return true;
}

}  // namespace sparsek::bsr::wmma
