#pragma once

#include <string>

#include "bsr_gemm/problem.h"
#include "bsr_gemm/wmma/kernels.h"

namespace sparsek::bsr::wmma {

/// A compiled kernel, as a row of the table.
struct Kernel {
  int tile_rows;
  int tile_cols;
  int tile_k;
  Major left;
  Major right;
  int smem_bytes;
  int ctas_per_sm;
  bool runs;
  double cost;  // of a product in a full tile, against the fastest kernel, measured
  void (*launch)(DType, const Params&, cudaStream_t);
};

/// The product as the kernels see it, left (rows, k) times right (k, cols). Where b alone is
/// block-sparse, or a sampled result's blocks are higher than wide, it is the transposed product:
/// out^T = b^T a^T.
struct Sides {
  bool transposed = false;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t block_rows = 0;  // 0: rows, or columns, are not cut into blocks
  std::int64_t block_cols = 0;
  Major left = Major::any;  // any: not to be read 16 bytes at a time
  Major right = Major::any;
};

struct Choice {
  const Kernel* kernel = nullptr;
  Sides sides;
  std::int64_t row_parts = 1;  // tiles that a block is cut into
  std::int64_t col_parts = 1;
  std::int64_t row_tiles = 0;
  std::int64_t num_tiles = 0;
  std::int32_t run = 1;  // see Params
};

/// A null kernel when none fits the device. `nnz`: blocks of a sampled result.
Choice choose(const Problem& problem, std::int64_t nnz);

/// How many tiles beside each other a CTA should multiply, where lists are about equally long.
/// `nnz`: blocks of the sparse operand.
std::int32_t choose_run(const Choice& choice, const Problem& problem, std::int64_t nnz);

std::string to_string(const Choice& choice);

}  // namespace sparsek::bsr::wmma
