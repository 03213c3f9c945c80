#include <algorithm>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "core/log.h"
#include "core/message.h"

namespace sparsek::bsr::sm90 {
namespace {

/// Boxes of 64 deep pieces of a dense operand.
CUtensorMap piece_map(const char* name, const TensorView& dense, int k_axis, Major major, int inner,
                      int box_rows) {
  const int row_axis = 1 - k_axis;
  const std::int64_t rows = dense.shape[row_axis], k = dense.shape[k_axis];
  return major == Major::k
             ? make_tensor_map(name, dense.dtype, dense.data,
                               {{k, 1, kTileK}, {rows, dense.stride[row_axis], box_rows}})
             : make_tensor_map(name, dense.dtype, dense.data,
                               {{rows, 1, inner}, {k, dense.stride[k_axis], kTileK}});
}

Matrix block_of(const TensorView& values) {
  return {values.data, values.stride[1], values.stride[2]};
}

/// What both products of two dense operands have in common.
void run_dense_operands(const Problem& p, const BsrGemmArgs& args, std::int64_t block_cols,
                        std::int64_t most_ctas, SampledParams* params) {
  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = major_of(p.a_access, 1);
  key.dense = major_of(p.b_access, 0);
  key.inner = static_cast<int>(std::min<std::int64_t>(block_cols, 64));
  params->log2_block_cols = log2_of(block_cols);
  params->steps = static_cast<std::int32_t>(ceil_div(p.k, kTileK));
  params->row_map = piece_map("a", args.a.dense, 1, key.sparse, 64, kTileRows);
  params->col_map =
      piece_map("b", args.b.dense, 0, key.dense, key.inner, static_cast<int>(block_cols));
  const int ctas = static_cast<int>(std::min<std::int64_t>(p.device.num_sms, most_ctas));
  if (log_enabled()) {
    log_once(cat(
        "bsr_gemm sm90 ", params->whole ? "dense" : "sampled", " widest_tile=", kTileRows, "x",
        kMostSampledUnits * kSampledUnit, "x", kTileK, " a=", key.sparse == Major::k ? "k" : "rows",
        " b=", key.dense == Major::k ? "k" : "cols", " inner=", key.inner, " ctas=", ctas));
  }
  const auto launch = p.dtype == DType::float16 ? launch_sampled_float16 : launch_sampled_bfloat16;
  launch(key, *params, ctas, static_cast<cudaStream_t>(args.stream));
}

}  // namespace

void run_sampled(const Problem& p, const BsrGemmArgs& args) {
  const BsrMatrixView& pattern = *args.out.sparse;
  if (pattern.nnz() == 0) return;
  SampledParams params{};
  params.lists = lists_of(pattern, OperandSide::left, Grouping::neighbours, args.out_plan);
  params.log2_block_rows = log2_of(p.out_block.rows);
  params.out_block_stride = pattern.values.stride[0];
  params.result.out = block_of(pattern.values);
  if (args.beta != 0) {
    params.c_block_stride = args.c.sparse->values.stride[0];
    params.result.c = block_of(args.c.sparse->values);
  }
  set_factors(p, args, p.out_access.axis == 1, &params.result);
  run_dense_operands(p, args, p.out_block.cols, pattern.nnz(), &params);
}

void run_dense(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  SampledParams params{};
  params.whole = true;
  params.rows = static_cast<std::int32_t>(p.m);
  params.cols = static_cast<std::int32_t>(p.n);
  params.result.out = matrix_of(args.out.dense, true);
  if (args.beta != 0) params.result.c = matrix_of(args.c.dense, true);
  set_factors(p, args, p.out_access.axis == 0, &params.result);
  run_dense_operands(p, args, kSampledUnit, num_tiles(p, kSampledUnit), &params);
}

}  // namespace sparsek::bsr::sm90
