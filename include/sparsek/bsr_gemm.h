#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sparsek/backend.h"
#include "sparsek/bsr_matrix.h"
#include "sparsek/tensor.h"

namespace sparsek {

/// A dense matrix (rank 2, any strides) or a block-sparse one.
struct MatrixOperand {
  TensorView dense;
  std::optional<BsrMatrixView> sparse;

  MatrixOperand() = default;
  MatrixOperand(const TensorView& tensor) : dense(tensor) {}
  MatrixOperand(const BsrMatrixView& matrix) : sparse(matrix) {}

  bool given() const { return sparse.has_value() || dense.given(); }
};

/// out = alpha * a b + beta * c, with a (M, K), b (K, N), c and out (M, N).
///
///   BSR x dense -> dense,  dense x BSR -> dense,  BSR x BSR -> dense,
///   dense x dense -> BSR: the product sampled at the pattern of `out`; c, where given, has that
///   same pattern.
///
/// float16 and bfloat16 (float32 on the CPU too), accumulated in float32; out has the inputs' dtype
/// or float32, and c has out's dtype. c may be out itself.
struct BsrGemmArgs {
  MatrixOperand a;
  MatrixOperand b;
  MatrixOperand c;
  MatrixOperand out;
  float alpha = 1.0f;
  float beta = 0.0f;

  std::string backend;     // empty: the first that supports the problem
  void* stream = nullptr;  // cudaStream_t
};

/// On a GPU the work is enqueued on `stream`. Throws Error.
void bsr_gemm(const BsrGemmArgs& args);

/// The name of the backend that `bsr_gemm` would run for these arguments. Throws Error when none
/// would.
std::string bsr_gemm_backend(const BsrGemmArgs& args);

/// The backend table in order of preference, as seen on this machine.
std::vector<BackendStatus> bsr_gemm_backends();

}  // namespace sparsek
