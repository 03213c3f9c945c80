#include <algorithm>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/simt/kernels.h"

namespace sparsek::bsr::simt {
namespace {

Reason available() { return why_no_gpu_from(80); }

Reason supports(const Problem& p) {
  if (p.device.device.type != DeviceType::cuda) {
    return cat("arrays are on ", to_string(p.device.device), ", expected a CUDA device");
  }
  if (p.device.compute_capability < 80) {
    return cat(to_string(p.device.device), " is ", p.device.name, " (sm_",
               p.device.compute_capability, "), expected sm_80 or later");
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem&) { return 0; }

Operand operand_of(const MatrixOperand& matrix) {
  Operand operand;
  if (!matrix.given()) return operand;
  if (!matrix.sparse) {
    operand.data = matrix.dense.data;
    operand.row_stride = matrix.dense.stride[0];
    operand.col_stride = matrix.dense.stride[1];
    return operand;
  }
  const BsrMatrixView& s = *matrix.sparse;
  operand.data = s.values.data;
  operand.block_stride = s.values.stride[0];
  operand.row_stride = s.values.stride[1];
  operand.col_stride = s.values.stride[2];
  operand.row_offsets = s.row_offsets;
  operand.col_indices = s.col_indices;
  operand.value_indices = s.value_indices;
  operand.nnz = s.nnz();
  operand.block_rows = static_cast<int>(s.block_rows());
  operand.block_cols = static_cast<int>(s.block_cols());
  operand.num_block_rows = s.num_block_rows();
  operand.num_block_cols = s.num_block_cols();
  return operand;
}

void run(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  Params params{};
  params.product = p.product;
  params.m = p.m;
  params.n = p.n;
  params.k = p.k;
  params.a = operand_of(args.a);
  params.b = operand_of(args.b);
  if (args.beta != 0) params.c = operand_of(args.c);
  params.out = operand_of(args.out);
  params.alpha = args.alpha;
  params.beta = args.beta;
  if (p.product == Product::sampled && params.out.nnz == 0) return;
  launch(p.dtype, p.out_dtype, params, static_cast<cudaStream_t>(args.stream));
}

}  // namespace

BsrGemmBackend backend() { return {"simt", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::bsr::simt
