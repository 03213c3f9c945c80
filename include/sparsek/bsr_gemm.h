#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
  /// These three are of an operand that is given and, where it is dense, has two axes.
  const TensorView& values() const { return sparse ? sparse->values : dense; }
  std::int64_t rows() const { return sparse ? sparse->rows : dense.shape[0]; }
  std::int64_t cols() const { return sparse ? sparse->cols : dense.shape[1]; }
};

/// out = alpha * a b + beta * c, with a (M, K), b (K, N), c and out (M, N).
///
///   BSR x dense -> dense,  dense x BSR -> dense,  BSR x BSR -> dense,
///   dense x dense -> BSR: the product sampled at the pattern of `out`; c, where given, has that
///   same pattern,
///   dense x dense -> dense.
///
/// float16 and bfloat16 (float32 on the CPU too), accumulated in float32; out has the inputs' dtype
/// or float32, and c has out's dtype. c may be out itself, a and b
/// may not.
struct BsrGemmArgs {
  MatrixOperand a;
  MatrixOperand b;
  MatrixOperand c;
  MatrixOperand out;
  float alpha = 1.0f;
  float beta = 0.0f;

  // What make_bsr_plan made of a's structure and of a sampled product's pattern as left operands,
  // and of b's as right one; null: the backends that need a plan decline.
  const void* a_plan = nullptr;
  const void* b_plan = nullptr;
  const void* out_plan = nullptr;

  std::string_view backend;  // empty: the first that supports the problem
  void* stream = nullptr;    // cudaStream_t

  // Device memory, 256-byte aligned; null: the backends that need some decline, and sm90 leaves
  // rows that are very long, and the few tiles of a small result, to one SM each, and computes two
  // sparse operands by a CTA for each tile.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// Which operand of a product a matrix is.
enum class OperandSide : std::uint8_t { left, right };

/// Bytes of device memory (256-byte aligned) for the plan of a matrix: its block lists, ordered and
/// merged for the fast kernels. 0 where no backend uses one.
std::size_t bsr_plan_bytes(const BsrMatrixView& matrix, OperandSide side);

/// How a plan is made.
///   full  for many products: rows that share blocks are multiplied together
///   low   for one product, in less time
enum class PlanEffort : std::uint8_t { full, low };

/// Enqueues on `stream` (a cudaStream_t) what fills the memory of a plan. It depends on the
/// structure alone, not on the values: one plan serves every matrix of the structure. Throws Error.
void make_bsr_plan(const BsrMatrixView& matrix, OperandSide side, void* memory, void* stream,
                   PlanEffort effort = PlanEffort::full);

/// Bytes of workspace that `bsr_gemm` would use for these arguments, were it given: 0 where the
/// first backend that takes them needs none.
std::size_t bsr_gemm_workspace_bytes(const BsrGemmArgs& args);

/// On a GPU the work is enqueued on `stream`. Throws Error.
void bsr_gemm(const BsrGemmArgs& args);

/// The same without a question before it: where a workspace is needed, `allocate` is called once
/// with its size in bytes and returns its address; that of `args` is not used.
void bsr_gemm(const BsrGemmArgs& args, const std::function<void*(std::size_t)>& allocate);

/// The name of the backend that `bsr_gemm` would run for these arguments. Throws Error when none
/// would.
std::string bsr_gemm_backend(const BsrGemmArgs& args);

/// The backend table in order of preference, as seen on this machine.
std::vector<BackendStatus> bsr_gemm_backends();

/// For each GPU of list_gpus(), the backend that a float16 product of a matrix with blocks of 64
/// and a dense one gets there; empty where none takes it.
std::vector<std::string> bsr_gemm_backends_by_gpu();

}  // namespace sparsek
