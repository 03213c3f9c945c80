#include <algorithm>
#include <utility>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90_dense/choice.h"
#include "bsr_gemm/sm90_dense/kernels.h"
#include "bsr_gemm/tma_limits.h"
#include "core/tensor_cores.h"

namespace sparsek::bsr::sm90_dense {
namespace {

constexpr std::int64_t kMaxCopyCols = std::int64_t{512} * 65535;  // a grid axis

Reason available() { return why_no_gpu(90); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_sm90(p.device, p.dtype)) return reason;
  if (p.product == Product::sampled) return "out is block-sparse, expected a dense one";
  if (p.out_dtype != p.dtype) return cat("out_dtype is ", p.out_dtype, ", expected ", p.dtype);
  const struct {
    const char* name;
    const BlockShape& block;
    const Access& access;
    bool used;
  } matrices[] = {{"a", p.a_block, p.a_access, true},
                  {"b", p.b_block, p.b_access, true},
                  {"out", p.out_block, p.out_access, true},
                  {"c", p.out_block, p.c_access, p.adds_c}};
  for (const auto& matrix : matrices) {
    if (!matrix.used) continue;
    if (matrix.block.rows != 0) {
      if (Reason reason = why_not_block(matrix.name, matrix.block)) return reason;
    }
    if (Reason reason = why_not_axis(matrix.name, matrix.access)) return reason;
    if (Reason reason = why_not_alignment(matrix.name, matrix.access)) return reason;
  }
  if (p.adds_c && p.c_access.axis != p.out_access.axis) {
    return "c and out are contiguous along different axes";
  }
  if (p.k == 0) return "k is 0, expected at least 1";
  if (Reason reason = why_not_extents(p)) return reason;
  if (p.product == Product::dense) return std::nullopt;
  if (std::max(p.n, p.k) > kMaxCopyCols) {
    return cat("the larger of n and k is ", std::max(p.n, p.k), ", expected at most ",
               kMaxCopyCols);
  }
  // Measured at all densities: docs/bsr_gemm_sm90.md.
  if (!p.forced) return "skipping blocks is faster than a dense copy, made where it is asked for";
  if (!p.workspace_offered) return "no workspace was given (bsr_gemm_workspace_bytes)";
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem& p) {
  return copy_bytes(p.a_block, p.m, p.k) + copy_bytes(p.b_block, p.k, p.n);
}

/// TMA wants a multiple of 16 bytes even for the stride of an axis with one element, which callers
/// fill with anything.
DenseMatrix dense_of(const TensorView& tensor, int contiguous_axis) {
  const int other = 1 - contiguous_axis;
  return {tensor.data, tensor.shape[other] > 1 ? tensor.stride[other] : 8, contiguous_axis};
}

/// A dense operand, or a dense copy in the workspace, which lies as the values of the blocks do.
DenseMatrix operand_of(const MatrixOperand& operand, const Access& access, char** workspace,
                       const BlockShape& block, cudaStream_t stream) {
  if (!operand.sparse) return dense_of(operand.dense, access.axis);
  const BsrMatrixView& matrix = *operand.sparse;
  const int axis = access.axis - 1;  // of a block, (nnz, rows, cols)
  const DenseMatrix copy{*workspace, axis == 1 ? matrix.cols : matrix.rows, axis};
  *workspace += copy_bytes(block, matrix.rows, matrix.cols);
  expand(matrix, copy, stream);
  return copy;
}

DenseMatrix transposed(DenseMatrix matrix) {
  matrix.contiguous_axis = 1 - matrix.contiguous_axis;
  return matrix;
}

void run(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  auto* workspace = static_cast<char*>(args.workspace);
  Gemm gemm{};
  gemm.m = static_cast<std::int32_t>(p.m);
  gemm.n = static_cast<std::int32_t>(p.n);
  gemm.k = static_cast<std::int32_t>(p.k);
  gemm.a = operand_of(args.a, p.a_access, &workspace, p.a_block, stream);
  gemm.b = operand_of(args.b, p.b_access, &workspace, p.b_block, stream);
  gemm.out = dense_of(args.out.dense, p.out_access.axis);
  gemm.c = p.adds_c ? dense_of(args.c.dense, p.c_access.axis) : gemm.out;
  gemm.alpha = args.alpha;
  gemm.beta = args.beta;
  gemm.num_sms = p.device.num_sms;
  if (p.out_access.axis == 0) {  // out^T = b^T a^T
    std::swap(gemm.m, gemm.n);
    std::swap(gemm.a, gemm.b);
    for (DenseMatrix* matrix : {&gemm.a, &gemm.b, &gemm.c, &gemm.out}) {
      *matrix = transposed(*matrix);
    }
  }
  gemm.tile = choose_tile(gemm.m, gemm.n, gemm.num_sms);
  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90_dense tile=", gemm.tile == Tile::large ? "128x256" : "64x128",
                 "x64 a=", gemm.a.contiguous_axis == 1 ? "k" : "rows",
                 " b=", gemm.b.contiguous_axis == 0 ? "k" : "cols",
                 " transposed=", p.out_access.axis == 0, " copy_bytes=", workspace_bytes(p)));
  }
  (p.dtype == DType::float16 ? gemm_float16 : gemm_bfloat16)(gemm, stream);
}

}  // namespace

BsrGemmBackend backend() { return {"sm90_dense", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::bsr::sm90_dense
