#include <algorithm>
#include <utility>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/tile_choice.h"
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
                          {values.shape[0], values.stride[0], 1}});
}

/// One of the two mixed cases is computed as the transpose of the other: fewer kernels.
bool is_swapped(const Problem& p) {
  return major_of(p.a_access, 2) == Major::free && major_of(p.b_access, 1) == Major::k;
}

int inner_of_pair(const Problem& p) { return std::min(inner_of(p.a_block), inner_of(p.b_block)); }

/// Whether a CTA can compute several tiles: stages are 64 deep, and stores need no shared memory.
bool takes_many(const Problem& p) {
  const bool rows_inner = (p.out_access.axis == 0) != is_swapped(p);
  return inner_of_pair(p) == 64 && p.out_dtype != DType::float32 && !p.adds_c && !rows_inner &&
         p.out_access.alignment == 16;
}

/// CTAs that the chip holds.
std::int64_t slots_of(const Problem& p) {
  using C = Config<void, Major::k, Major::k, 64, kTileRows, 3, Kind::both_sparse>;
  return std::int64_t{C::kCtasPerSm} * p.device.num_sms;
}

constexpr std::size_t kBytesOfNextTile = 256;

// Of a panel of columns: values that L2 still has when the next row group comes.
constexpr std::int64_t kPanelBytes = std::int64_t{20} << 20;

std::int32_t groups_of_panel(const BsrMatrixView& cols, std::int32_t num_groups) {
  const std::int64_t bytes = cols.nnz() * cols.block_rows() * cols.block_cols() * 2;
  const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(bytes, kPanelBytes));
  return static_cast<std::int32_t>(
      ceil_div(num_groups, std::min<std::int64_t>(panels, num_groups)));
}

}  // namespace

std::size_t bytes_of_next_tile(const Problem& p) {
  return takes_many(p) && num_tiles(p, kTileRows) > slots_of(p) ? kBytesOfNextTile : 0;
}

void run_pairs(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const Side a{"a", OperandSide::left, *args.a.sparse, args.a_plan, 2, major_of(p.a_access, 2)};
  const Side b{"b", OperandSide::right, *args.b.sparse, args.b_plan, 1, major_of(p.b_access, 1)};
  const bool swapped = is_swapped(p);
  const Side &rows = swapped ? b : a, &cols = swapped ? a : b;

  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = rows.major;
  key.dense = cols.major;
  key.inner = inner_of_pair(p);
  key.tile_cols = kTileRows;
  // Without a workspace a CTA has one tile.
  const bool many = bytes_of_next_tile(p) > 0, taken = many && p.workspace_offered;
  if (takes_many(p) && many == taken) {
    key.ctas = static_cast<int>(std::min(num_tiles(p, kTileRows), slots_of(p)));
  }

  Params params{};
  params.lists = lists_of(rows.matrix, rows.side, Grouping::neighbours, rows.plan);
  params.col_lists = lists_of(cols.matrix, cols.side, Grouping::neighbours, cols.plan);
  params.log2_block_rows = log2_of(rows.block());
  params.log2_block_cols = log2_of(cols.block());
  params.log2_block_k = log2_of(rows.block_k());
  params.rows = static_cast<std::int32_t>(rows.extent());
  params.cols = static_cast<std::int32_t>(cols.extent());
  params.num_tiles = params.lists.num_groups * params.col_lists.num_groups;
  params.panel_groups = groups_of_panel(cols.matrix, params.col_lists.num_groups);
  for (const Side* side : {&rows, &cols}) {
    if (side->matrix.nnz() == 0) continue;
    (side == &rows ? params.sparse_map : params.dense_map) = map_of(*side, key.inner);
  }
  set_out(p, args, !swapped, &params.result);
  if (taken) params.next_tile = static_cast<std::int32_t*>(args.workspace);

  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 pairs tile=", kTileRows, "x", kTileRows, "x", kTileK, " inner=",
                 key.inner, " rows=", rows.name, key.sparse == Major::k ? " (k)" : " (rows)",
                 " cols=", cols.name, key.dense == Major::k ? " (k)" : " (cols)",
                 " tiles=", params.num_tiles, " ctas=", key.ctas > 0 ? key.ctas : params.num_tiles,
                 taken ? " that take tiles as they get ready" : ""));
  }
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (taken) start_tiles(params.next_tile, key.ctas, stream);
  const auto launch = p.dtype == DType::float16 ? launch_pairs_float16 : launch_pairs_bfloat16;
  launch(key, params, stream);
}

}  // namespace sparsek::bsr::sm90
