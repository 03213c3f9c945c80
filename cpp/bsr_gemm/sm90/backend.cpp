#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/sides.h"
#include "bsr_gemm/sm90/tile_choice.h"
#include "bsr_gemm/tma_limits.h"
#include "core/tensor_cores.h"

namespace sparsek::bsr::sm90 {
namespace {

constexpr int kNarrowestTile = 64;

/// Blocks that threads copy are found by 32 bits, in units of 16 bytes.
Reason why_not_copied(const Problem& p) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
  const bool one_sparse = p.product == Product::sparse_dense || p.product == Product::dense_sparse;
  if (!one_sparse) return std::nullopt;
  const Sides s = sides_of(p);
  if (inner_of(s.block) > 16 || s.sparse.bytes <= kMostBytes) return std::nullopt;
  return cat(s.sparse_name, " has values that span ", s.sparse.bytes,
             " bytes, expected no more than 64 GiB with blocks of 16");
}

Reason available() { return why_no_gpu(90); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_sm90(p.device, p.dtype)) return reason;
  const struct {
    const char* name;
    const BlockShape& block;
    const Access& access;
    bool planned;
  } matrices[] = {{"a", p.a_block, p.a_access, p.a_planned},
                  {"b", p.b_block, p.b_access, p.b_planned},
                  {"out", p.out_block, p.out_access, p.out_planned}};
  for (const auto& matrix : matrices) {
    if (matrix.block.rows == 0) continue;  // dense
    if (Reason reason = why_not_block(matrix.name, matrix.block)) return reason;
    if (!matrix.planned) return cat(matrix.name, " has no plan (make_bsr_plan)");
  }
  for (const auto& matrix : matrices) {
    if (Reason reason = why_not_axis(matrix.name, matrix.access)) return reason;
    if (&matrix.access == &p.out_access) continue;  // stored by threads
    if (Reason reason = why_not_alignment(matrix.name, matrix.access)) return reason;
  }
  if (Reason reason = why_not_copied(p)) return reason;
  if (p.k == 0) return "k is 0, expected at least one block";
  if (Reason reason = why_not_extents(p)) return reason;
  if (num_tiles(p, kNarrowestTile) >= kMaxExtent) {
    return cat("the result has ", num_tiles(p, kNarrowestTile), " tiles, expected less than ",
               kMaxExtent);
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem& p) {
  if (!p.workspace_offered) return 0;
  switch (p.product) {
    case Product::sparse_dense:
    case Product::dense_sparse: return bytes_of_sums(p);
    case Product::sparse_sparse: return bytes_of_next_tile(p);
    case Product::sampled:
    case Product::dense: return bytes_of_shared_tiles(p);
  }
  return 0;
}

void run(const Problem& p, const BsrGemmArgs& args) {
  switch (p.product) {
    case Product::sparse_dense:
    case Product::dense_sparse: return run_one_sparse(p, args);
    case Product::sparse_sparse: return run_pairs(p, args);
    case Product::sampled: return run_sampled(p, args);
    case Product::dense: return run_dense(p, args);
  }
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

void fill_plan(const BsrMatrixView& matrix, OperandSide side, PlanEffort effort, void* memory,
               void* stream) {
  make_plan(matrix, side, effort, memory, static_cast<cudaStream_t>(stream));
}

}  // namespace sparsek::bsr::sm90
