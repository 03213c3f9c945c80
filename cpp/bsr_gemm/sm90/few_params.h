#pragma once

#include "bsr_gemm/sm90/few_config.h"
#include "bsr_gemm/sm90/params.h"

namespace sparsek::bsr::sm90 {

// What each CTA of the kernel for few columns does, written down with the plan (few_deal.cuh): what
// a CTA begins with lies where it need not be looked for.

/// A square of a block, and of the dense operand the rows that belong to it.
struct alignas(8) FewSquare {
  std::int32_t value;         // -1: none, zeros
  std::int32_t k_and_in_row;  // multiples of kInRow, and which tile of the block row

  static constexpr std::int32_t kInRow = 16;
  constexpr std::int32_t k() const { return k_and_in_row & ~(kInRow - 1); }
  constexpr std::int32_t tile_in_row() const { return k_and_in_row & (kInRow - 1); }
};

constexpr int kFewFirst = 32 * kFewMostProducers;  // a square for each lane that loads

/// All squares of a CTA, in the order in which it takes them.
struct alignas(16) FewShare {
  std::int64_t begin;
  std::int32_t squares;  // whole stages
  std::int32_t padding;
  FewSquare first[kFewFirst];  // once more
};

/// What a CTA multiplies for a tile.
struct alignas(16) FewPart {
  std::int32_t row;  // the tile's first one; kNoPart behind the last part
  std::int32_t stages;
  std::int32_t shared;  // the other CTA of the cluster has the rest: 0 or 1
  std::int32_t padding;
};
constexpr std::int32_t kNoPart = -1;
constexpr int kFewMostParts = kFewMostTiles + 1;  // of a CTA, with the one behind the last

struct FewDeal {
  const FewShare* shares;
  const FewSquare* squares;
  const FewPart* parts;
};

/// For the epilogue rows are what lies along WGMMA's M (FewConfig).
struct FewParams {
  FewDeal deal;
  std::int32_t stages;
  std::int32_t turns;
  bool staging_apart;  // FewLayout::apart
  std::int32_t block_k_mask;
  const void* sparse_values;          // for squares that threads copy
  std::uint32_t sparse_block_stride;  // in units of 16 bytes
  std::uint32_t sparse_line_stride;   // the same, of the axis that is not contiguous
  bool dense_in_chunks;               // as in Params
  std::int32_t dense_lines;           // columns that a stage's copies fill
  std::int32_t rows;
  std::int32_t cols;
  Result result;
  CUtensorMap sparse_map;  // for others
  CUtensorMap dense_map;
};

}  // namespace sparsek::bsr::sm90
