#include <algorithm>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/sampled_cut.h"
#include "bsr_gemm/tma_limits.h"
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

std::int32_t steps_of(const Problem& p) { return static_cast<std::int32_t>(ceil_div(p.k, kTileK)); }

/// Units of columns that tiles have, at most.
std::int64_t units_of(const Problem& p) {
  const std::int64_t all = ceil_div(p.m, kTileRows) * ceil_div(p.n, kSampledUnit);
  return p.product == Product::sampled ? std::min(p.out_blocks, all) : all;
}

/// CTAs that may share a tile: 1 where there are likely so many tiles that none is shared. What the
/// lists are the host does not know; and where nothing is shared, a cooperative launch takes up to
/// a seventh longer than another one.
std::int32_t most_parts_of(const Problem& p) {
  if (!p.workspace_offered) return 1;
  const std::int32_t steps = steps_of(p);
  const auto rounds_of = [&](int width) {
    SampledRounds rounds{p.device.num_sms, steps, SampledRounds::most_parts_of(steps),
                         static_cast<std::int32_t>(ceil_div(p.m, kTileRows)),
                         static_cast<std::int32_t>(ceil_div(p.n, kSampledUnit))};
    const std::int64_t tiles = ceil_div(units_of(p), width);
    rounds.add(static_cast<std::int32_t>(std::min(tiles, kMaxExtent)), width);
    return rounds;
  };
  SampledRounds best = rounds_of(1);
  for (int width = 2; width <= kMostSampledUnits; ++width) {
    const SampledRounds rounds = rounds_of(width);
    if (rounds.cost() < best.cost()) best = rounds;
  }
  return best.parts() > 1 ? best.most_parts : 1;
}

/// What both products of two dense operands have in common.
void run_dense_operands(const Problem& p, const BsrGemmArgs& args, std::int64_t block_cols,
                        SampledParams* params) {
  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = major_of(p.a_access, 1);
  key.dense = major_of(p.b_access, 0);
  key.inner = static_cast<int>(std::min<std::int64_t>(block_cols, 64));
  params->rows = static_cast<std::int32_t>(p.m);
  params->cols = static_cast<std::int32_t>(p.n);
  params->log2_block_cols = log2_of(block_cols);
  params->steps = steps_of(p);
  params->most_parts = most_parts_of(p);
  params->row_map = piece_map("a", args.a.dense, 1, key.sparse, 64, kTileRows);
  params->col_map =
      piece_map("b", args.b.dense, 0, key.dense, key.inner, static_cast<int>(block_cols));
  const bool shares = params->most_parts > 1;
  if (shares) params->sums = static_cast<float*>(args.workspace);
  const std::int64_t most_ctas = shares ? p.device.num_sms : units_of(p);
  const int ctas = static_cast<int>(std::min<std::int64_t>(p.device.num_sms, most_ctas));
  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 ", params->whole ? "dense" : "sampled", " widest_tile=", kTileRows,
                 "x", kMostSampledUnits * kSampledUnit, "x", kTileK, " a=",
                 key.sparse == Major::k ? "k" : "rows", " b=", key.dense == Major::k ? "k" : "cols",
                 " inner=", key.inner, " ctas=", ctas, " most_parts=", params->most_parts));
  }
  const auto launch = p.dtype == DType::float16 ? launch_sampled_float16 : launch_sampled_bfloat16;
  launch(key, *params, ctas, static_cast<cudaStream_t>(args.stream));
}

}  // namespace

std::size_t bytes_of_shared_tiles(const Problem& p) {
  if (most_parts_of(p) == 1) return 0;
  constexpr std::size_t kBytesOfSums =
      kTileRows * kMostSampledUnits * kSampledUnit * sizeof(float);  // of a CTA
  return static_cast<std::size_t>(p.device.num_sms) * kBytesOfSums;
}

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
  run_dense_operands(p, args, p.out_block.cols, &params);
}

void run_dense(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  SampledParams params{};
  params.whole = true;
  params.result.out = matrix_of(args.out.dense, true);
  if (args.beta != 0) params.result.c = matrix_of(args.c.dense, true);
  set_factors(p, args, p.out_access.axis == 0, &params.result);
  run_dense_operands(p, args, kSampledUnit, &params);
}

}  // namespace sparsek::bsr::sm90
