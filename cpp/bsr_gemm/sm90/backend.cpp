#include <algorithm>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90/launch.h"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/tensor_map.h"
#include "core/cuda_check.h"
#include "core/sm90.h"

namespace sparsek::bsr::sm90 {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;  // coordinates are 32-bit
constexpr int kWideTile = 256, kNarrowTile = 64;

bool takes_block(const BlockShape& block) {
  const auto takes = [](std::int64_t extent) {
    return extent == 16 || extent == 32 || extent == 64 || extent == 128;
  };
  return takes(block.rows) && takes(block.cols);
}

/// The product with the sparse operand on the left: out^T = b^T a^T where b is the sparse one.
struct Sides {
  OperandSide side;
  BlockShape block;         // (rows, k)
  std::int64_t rows, cols;  // of the result
  Access sparse, dense;
  int sparse_k_axis, dense_k_axis;
};

Sides sides_of(const Problem& p) {
  if (p.product == Product::sparse_dense) {
    return {OperandSide::left, p.a_block, p.m, p.n, p.a_access, p.b_access, 2, 0};
  }
  return {
      OperandSide::right, {p.b_block.cols, p.b_block.rows}, p.n, p.m, p.b_access, p.a_access, 1, 1};
}

std::int64_t num_tiles(const Sides& s, int tile_cols) {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  return ceil_div(s.rows, kTileRows) * ceil_div(s.cols, tile_cols);
}

Reason available() { return why_no_gpu(90); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_sm90(p.device, p.dtype)) return reason;
  if (p.product != Product::sparse_dense && p.product != Product::dense_sparse) {
    return "expected one block-sparse operand and a dense result";
  }
  const Sides s = sides_of(p);
  const bool left = s.side == OperandSide::left;
  const BlockShape& block = left ? p.a_block : p.b_block;
  if (!takes_block(block)) {
    return cat("blocks are ", block.rows, "x", block.cols, ", expected 16, 32, 64 or 128 each way");
  }
  if (!(left ? p.a_planned : p.b_planned)) {
    return cat(left ? "a" : "b", " has no plan (make_bsr_plan)");
  }
  const struct {
    const char* name;
    const Access& access;
  } operands[] = {{"a", p.a_access}, {"b", p.b_access}};
  for (const auto& operand : operands) {
    if (operand.access.axis < 0) {
      return cat(operand.name, " has no contiguous axis");
    }
    if (operand.access.alignment < 16) {
      return cat(operand.name, " has an address or strides that are multiples of ",
                 operand.access.alignment, " bytes, expected 16 (TMA), and no negative strides");
    }
  }
  if (p.out_access.axis < 0) return "out has no contiguous axis";
  if (p.k == 0) return "k is 0, expected at least one block";
  if (std::max({p.m, p.n, p.k}) >= kMaxExtent) {
    return cat("the largest of m, n, k is ", std::max({p.m, p.n, p.k}), ", expected less than ",
               kMaxExtent);
  }
  if (num_tiles(s, kNarrowTile) >= kMaxExtent) {
    return cat("the result has ", num_tiles(s, kNarrowTile), " tiles, expected less than ",
               kMaxExtent);
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem&) { return 0; }

int log2_of(std::int64_t power) {
  int log2 = 0;
  while ((std::int64_t{1} << log2) < power) ++log2;
  return log2;
}

/// Axis 0 or 1 of a result is that along the sparse operand's rows.
Matrix matrix_of(const TensorView& tensor, bool left) {
  return {tensor.data, tensor.stride[left ? 0 : 1], tensor.stride[left ? 1 : 0]};
}

void set_sparse(const Sides& s, const TensorView& values, const KernelKey& key, Params* params) {
  const int k_axis = s.sparse_k_axis, row_axis = 3 - k_axis;
  const bool k_inner = key.sparse == Major::k;
  params->sparse_values = values.data;
  params->sparse_block_stride = values.stride[0];
  params->sparse_line_stride = values.stride[k_inner ? row_axis : k_axis];
  if (key.inner == 16 || values.shape[0] == 0) return;
  const int box_rows = static_cast<int>(std::min<std::int64_t>(s.block.rows, kGroupRows));
  const int box_k = static_cast<int>(std::min<std::int64_t>(s.block.cols, kTileK));
  const MapAxis blocks{values.shape[0], values.stride[0], 1};
  params->sparse_map = k_inner ? make_tensor_map(key.dtype, values.data,
                                                 {{s.block.cols, 1, key.inner},
                                                  {s.block.rows, values.stride[row_axis], box_rows},
                                                  blocks})
                               : make_tensor_map(key.dtype, values.data,
                                                 {{s.block.rows, 1, key.inner},
                                                  {s.block.cols, values.stride[k_axis], box_k},
                                                  blocks});
}

void set_dense(const Sides& s, const TensorView& dense, const KernelKey& key, Params* params) {
  const int k_axis = s.dense_k_axis, col_axis = 1 - k_axis;
  const std::int64_t k = dense.shape[k_axis];
  if (key.dense == Major::k) {
    params->dense_map =
        make_tensor_map(key.dtype, dense.data,
                        {{k, 1, key.inner}, {s.cols, dense.stride[col_axis], key.tile_cols}});
    return;
  }
  params->dense_in_chunks = s.cols % 64 == 0;
  const std::int64_t stride = dense.stride[k_axis];
  params->dense_map =
      params->dense_in_chunks
          ? make_tensor_map(
                key.dtype, dense.data,
                {{64, 1, 64}, {k, stride, key.inner}, {s.cols / 64, 64, key.tile_cols / 64}})
          : make_tensor_map(key.dtype, dense.data,
                            {{s.cols, 1, 64}, {k, stride, key.inner}, {1, 64, 1}});
}

void set_out(const Problem& p, const BsrGemmArgs& args, bool left, Params* params) {
  const TensorView& out = args.out.dense;
  params->out = matrix_of(out, left);
  if (args.beta != 0) params->c = matrix_of(args.c.dense, left);
  params->alpha = args.alpha;
  params->beta = args.beta;
  params->wide_out = p.out_dtype == DType::float32;
  params->rows_inner = (p.out_access.axis == 0) == left;
  params->aligned = p.out_access.alignment == 16;
}

void run(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const Sides s = sides_of(p);
  const bool left = s.side == OperandSide::left;
  const BsrMatrixView& matrix = left ? *args.a.sparse : *args.b.sparse;

  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = s.sparse.axis == s.sparse_k_axis ? Major::k : Major::free;
  key.dense = s.dense.axis == s.dense_k_axis ? Major::k : Major::free;
  key.inner = static_cast<int>(std::min({s.block.rows, s.block.cols, std::int64_t{64}}));
  // Few tiles: narrower ones, so that every SM has one.
  key.tile_cols = num_tiles(s, kWideTile) < p.device.num_sms ? kNarrowTile : kWideTile;

  Params params{};
  params.lists = lists_of(matrix, s.side, left ? args.a_plan : args.b_plan);
  params.log2_block_rows = log2_of(s.block.rows);
  params.log2_block_k = log2_of(s.block.cols);
  params.absent_col = static_cast<std::int32_t>(p.k / s.block.cols);
  params.rows = static_cast<std::int32_t>(s.rows);
  params.cols = static_cast<std::int32_t>(s.cols);
  params.num_tiles = static_cast<std::int32_t>(num_tiles(s, key.tile_cols));
  set_sparse(s, matrix.values, key, &params);
  set_dense(s, left ? args.b.dense : args.a.dense, key, &params);
  set_out(p, args, left, &params);

  if (log_enabled()) {
    log_once(cat("bsr_gemm sm90 tile=", kTileRows, "x", key.tile_cols, "x", kTileK,
                 " inner=", key.inner, " sparse=", key.sparse == Major::k ? "k" : "rows",
                 " dense=", key.dense == Major::k ? "k" : "cols", " tiles=", params.num_tiles));
  }
  const DeviceGuard guard(p.device.device);
  const auto launch = key.inner == 16 ? launch_16 : key.inner == 32 ? launch_32 : launch_64;
  launch(key, params, p.device.num_sms, static_cast<cudaStream_t>(args.stream));
}

}  // namespace

BsrGemmBackend backend() { return {"sm90", available, supports, workspace_bytes, run}; }

std::size_t bytes_of_plan(const BsrMatrixView& matrix, OperandSide side) {
  const TensorView& values = matrix.values;
  const bool planned = values.device.type == DeviceType::cuda &&
                       device_info(values.device).compute_capability == 90 &&
                       takes_block({matrix.block_rows(), matrix.block_cols()});
  return planned ? plan_bytes(matrix, side) : 0;
}

void fill_plan(const BsrMatrixView& matrix, OperandSide side, void* memory, void* stream) {
  const DeviceGuard guard(matrix.values.device);
  make_plan(matrix, side, memory, static_cast<cudaStream_t>(stream));
}

}  // namespace sparsek::bsr::sm90
