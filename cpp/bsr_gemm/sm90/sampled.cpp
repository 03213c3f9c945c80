#include <algorithm>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "core/cuda_check.h"
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
                               {{k, 1, kTileK}, {rows, dense.stride[row_axis], box_rows}},
                               L2Fetch::bytes_128)
             : make_tensor_map(name, dense.dtype, dense.data,
                               {{rows, 1, inner}, {k, dense.stride[k_axis], kTileK}},
                               L2Fetch::bytes_128);
}

Matrix block_of(const TensorView& values) {
  return {values.data, values.stride[1], values.stride[2]};
}

}  // namespace

void run_sampled(const Problem& p, const BsrGemmArgs& args) {
  const BsrMatrixView& pattern = *args.out.sparse;
  if (pattern.nnz() == 0) return;
  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = major_of(p.a_access, 1);
  key.dense = major_of(p.b_access, 0);
  key.inner = static_cast<int>(std::min<std::int64_t>(p.out_block.cols, 64));

  SampledParams params{};
  params.lists = lists_of(pattern, OperandSide::left, args.out_plan);
  params.log2_block_rows = log2_of(p.out_block.rows);
  params.log2_block_cols = log2_of(p.out_block.cols);
  params.steps = static_cast<std::int32_t>(ceil_div(p.k, kTileK));
  params.row_map = piece_map("a", args.a.dense, 1, key.sparse, 64, kTileRows);
  params.col_map =
      piece_map("b", args.b.dense, 0, key.dense, key.inner, static_cast<int>(p.out_block.cols));
  params.out_block_stride = pattern.values.stride[0];
  params.out = block_of(pattern.values);
  if (args.beta != 0) {
    params.c_block_stride = args.c.sparse->values.stride[0];
    params.c = block_of(args.c.sparse->values);
  }
  params.alpha = args.alpha;
  params.beta = args.beta;
  params.wide_out = p.out_dtype == DType::float32;
  params.rows_inner = p.out_access.axis == 1;
  params.aligned = p.out_access.alignment == 16;

  const int ctas = static_cast<int>(std::min<std::int64_t>(p.device.num_sms, pattern.nnz()));
  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 sampled tile=", kTileRows, "x256x", kTileK, " a=",
                 key.sparse == Major::k ? "k" : "rows", " b=", key.dense == Major::k ? "k" : "cols",
                 " inner=", key.inner, " ctas=", ctas));
  }
  const DeviceGuard guard(p.device.device);
  const auto launch = p.dtype == DType::float16 ? launch_sampled_float16 : launch_sampled_bfloat16;
  launch(key, params, ctas, static_cast<cudaStream_t>(args.stream));
}

}  // namespace sparsek::bsr::sm90
