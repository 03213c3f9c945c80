#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/sides.h"
#include "bsr_gemm/sm90/tile_choice.h"
#include "core/integers.h"
#include "core/log.h"
#include "core/message.h"

namespace sparsek::bsr::sm90 {

bool takes_few(const Problem& p) {
  const Sides s = sides_of(p);
  return few_columns_pay(s.rows, p.k, s.cols, inner_of(s.block), s.density,
                         major_of(s.dense, s.dense_k_axis), p.device.num_sms);
}

void run_few(const Problem& p, const BsrGemmArgs& args) {
  const Sides s = sides_of(p);
  const bool left = s.side == OperandSide::left;
  const BsrMatrixView& matrix = left ? *args.a.sparse : *args.b.sparse;
  const TensorView& values = matrix.values;

  KernelKey key = key_of(p, s);
  const int group_cols = few_group_cols(key.inner, s.cols);
  key.tile_cols = static_cast<int>(ceil_div(s.cols, group_cols)) * group_cols;

  FewParams params{};
  params.deal = deal_of(matrix, s.side, left ? args.a_plan : args.b_plan);
  params.staging_apart = few_staging_apart(s.rows, key.inner, p.device.num_sms);
  params.block_k_mask = static_cast<std::int32_t>(s.block.cols - 1);
  const bool rows_along_m = few_rows_along_m(group_cols);
  params.rows = static_cast<std::int32_t>(rows_along_m ? s.rows : s.cols);
  params.cols = static_cast<std::int32_t>(rows_along_m ? s.cols : s.rows);
  if (key.inner == 16) {
    set_copied(s, values, key.sparse, &params);
  } else if (values.shape[0] > 0) {
    params.sparse_map = block_map(s.sparse_name, values, s.sparse_k_axis, key.sparse, key.inner,
                                  key.inner, key.inner);
  }
  // Lines beyond the last column would take TMA longer than others.
  const std::int64_t cols = key.dense == Major::k ? s.cols : key.tile_cols;
  params.dense_in_chunks = dense_in_chunks(s, key);
  params.dense_map = dense_map(s, left ? args.b.dense : args.a.dense, key, cols);
  params.dense_lines = static_cast<std::int32_t>(cols);
  set_out(p, args, left == rows_along_m, &params.result);

  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 few columns tile=", key.inner, "x", key.tile_cols, "x", kTileK,
                 " sparse=", key.sparse == Major::k ? "k" : "rows",
                 " dense=", key.dense == Major::k ? "k" : "cols", " tiles=", s.rows / key.inner,
                 " clusters=", few_clusters(p.device.num_sms)));
  }
  const auto launch = key.inner == 16   ? launch_few_16
                      : key.inner == 32 ? launch_few_32
                      : rows_along_m    ? launch_few_128_cols
                                        : launch_few_64;
  launch(key, params, p.device.num_sms, static_cast<cudaStream_t>(args.stream));
}

}  // namespace sparsek::bsr::sm90
