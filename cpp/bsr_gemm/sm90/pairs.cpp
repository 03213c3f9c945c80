#include <algorithm>
#include <utility>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "core/cuda_check.h"
#include "core/log.h"
#include "core/message.h"

namespace sparsek::bsr::sm90 {
namespace {

/// One of the two sparse operands, as what lies along an axis of the result.
struct Side {
  const char* name;
  OperandSide side;
  const BsrMatrixView& matrix;
  const void* plan;
  int k_axis;  // of its values
  Major major;

  std::int64_t extent() const { return side == OperandSide::left ? matrix.rows : matrix.cols; }
  std::int64_t block() const { return matrix.values.shape[3 - k_axis]; }
  std::int64_t block_k() const { return matrix.values.shape[k_axis]; }
};

/// Of blocks of 64 and 128 boxes have all rows, 64 deep.
CUtensorMap map_of(const Side& side, int inner) {
  const TensorView& values = side.matrix.values;
  if (inner < 64 || side.major == Major::k) {
    return block_map(side.name, values, side.k_axis, side.major, inner,
                     inner < 64 ? kGroupRows : kTileRows);
  }
  const std::int64_t pieces = side.block() / 64;  // a box's lines are of 64 elements
  return make_tensor_map(side.name, values.dtype, values.data,
                         {{64, 1, 64},
                          {side.block_k(), values.stride[side.k_axis], 64},
                          {pieces, 64, static_cast<int>(pieces)},
                          {values.shape[0], values.stride[0], 1}},
                         L2Fetch::bytes_128);
}

}  // namespace

void run_pairs(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const Side a{"a", OperandSide::left, *args.a.sparse, args.a_plan, 2, major_of(p.a_access, 2)};
  const Side b{"b", OperandSide::right, *args.b.sparse, args.b_plan, 1, major_of(p.b_access, 1)};
  // One of the two mixed cases is computed as the transpose of the other: fewer kernels.
  const bool swapped = a.major == Major::free && b.major == Major::k;
  const Side &rows = swapped ? b : a, &cols = swapped ? a : b;

  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = rows.major;
  key.dense = cols.major;
  key.inner =
      static_cast<int>(std::min({rows.block(), cols.block(), rows.block_k(), std::int64_t{64}}));
  key.tile_cols = kTileRows;

  Params params{};
  params.lists = lists_of(rows.matrix, rows.side, Grouping::neighbours, rows.plan);
  params.col_lists = lists_of(cols.matrix, cols.side, Grouping::neighbours, cols.plan);
  params.log2_block_rows = log2_of(rows.block());
  params.log2_block_cols = log2_of(cols.block());
  params.log2_block_k = log2_of(rows.block_k());
  params.rows = static_cast<std::int32_t>(rows.extent());
  params.cols = static_cast<std::int32_t>(cols.extent());
  params.num_tiles = params.lists.num_groups * params.col_lists.num_groups;
  for (const Side* side : {&rows, &cols}) {
    if (side->matrix.nnz() == 0) continue;
    (side == &rows ? params.sparse_map : params.dense_map) = map_of(*side, key.inner);
  }
  set_out(p, args, !swapped, &params.result);
  const bool plain = !params.result.wide_out && params.result.beta == 0 &&
                     !params.result.rows_inner && params.result.aligned;
  if (plain && key.inner == 64) {
    params.slots =
        Config<void, Major::k, Major::k, 64, kTileRows, 3, Kind::both_sparse>::kCtasPerSm *
        p.device.num_sms;
  }

  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 pairs tile=", kTileRows, "x", kTileRows, "x", kTileK, " inner=",
                 key.inner, " rows=", rows.name, key.sparse == Major::k ? " (k)" : " (rows)",
                 " cols=", cols.name, key.dense == Major::k ? " (k)" : " (cols)",
                 " tiles=", params.num_tiles, " slots=", params.slots));
  }
  const DeviceGuard guard(p.device.device);
  const auto launch = p.dtype == DType::float16 ? launch_pairs_float16 : launch_pairs_bfloat16;
  launch(key, params, static_cast<cudaStream_t>(args.stream));
}

}  // namespace sparsek::bsr::sm90
