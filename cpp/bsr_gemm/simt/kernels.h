#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bsr_gemm/problem.h"

namespace sparsek::bsr::simt {

/// A dense matrix, or the values of a block-sparse one; strides in elements.
struct Operand {
  void* data = nullptr;
  std::int64_t block_stride = 0;  // block-sparse only
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;

  // Block-sparse only.
  const std::int64_t* row_offsets = nullptr;
  const std::int32_t* col_indices = nullptr;
  const std::int32_t* value_indices = nullptr;
  std::int64_t nnz = 0;
  int block_rows = 0;
  int block_cols = 0;
  std::int64_t num_block_rows = 0;
  std::int64_t num_block_cols = 0;

#if defined(__CUDACC__)
  __host__ __device__
#endif
      bool sparse() const {
    return row_offsets != nullptr;
  }
};

struct Params {
  Product product;
  std::int64_t m, n, k;
  Operand a, b, c, out;
  float alpha, beta;
  int tiles_in_rows, tiles_in_cols;  // tiles that a block of the output is cut into
  std::int64_t col_tiles;            // tiles that the output's columns are cut into
};

void launch(DType dtype, DType out_dtype, const Params& params, cudaStream_t stream);

}  // namespace sparsek::bsr::simt
