#pragma once

// The launches that a product is made of. All of them are enqueued on `stream`; none allocates.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bsr_gemm/sm90_dense/choice.h"
#include "sparsek/bsr_matrix.h"
#include "sparsek/types.h"

namespace sparsek::bsr::sm90_dense {

/// A matrix with one contiguous axis; `stride` is that of the other one, in elements.
struct DenseMatrix {
  void* data = nullptr;
  std::int64_t stride = 0;
  int contiguous_axis = 1;
};

/// out = alpha * a b + beta * c; out and c have contiguous rows.
struct Gemm {
  std::int32_t m, n, k;
  DenseMatrix a, b, c, out;
  float alpha, beta;
  Tile tile;
  int num_sms;
};

void gemm_float16(const Gemm& gemm, cudaStream_t stream);
void gemm_bfloat16(const Gemm& gemm, cudaStream_t stream);

/// Writes all of a (rows, cols) matrix from its blocks of 16-bit values, zeros where there is none.
/// As in a plan, an index out of range is left out, and of a block that is listed twice always the
/// same one is taken.
void expand(const BsrMatrixView& matrix, const DenseMatrix& to, cudaStream_t stream);

}  // namespace sparsek::bsr::sm90_dense
