#include "bsr_gemm/backends.h"
#include "bsr_gemm/wmma/choice.h"
#include "core/tensor_cores.h"

namespace sparsek::bsr::wmma {
namespace {

constexpr std::int64_t kMostTiles = 0x7fffffff;

Reason available() { return why_no_gpu_from(80); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_tensor_cores(p.device, p.dtype)) return reason;
  const struct {
    const char* name;
    const BlockShape& block;
  } operands[] = {{"a", p.a_block}, {"b", p.b_block}, {"out", p.out_block}};
  for (const auto& operand : operands) {
    if (operand.block.rows % kGranule != 0 || operand.block.cols % kGranule != 0) {
      return cat("blocks of ", operand.name, " are ", operand.block.rows, "x", operand.block.cols,
                 ", expected multiples of ", kGranule, " each way");
    }
  }
  const Choice choice = choose(p, 0);
  if (choice.kernel == nullptr) {
    return cat(p.device.name, " has ", p.device.max_smem_per_block_bytes,
               " bytes of shared memory for a block, which no kernel fits");
  }
  if (choice.num_tiles > kMostTiles) {
    return cat("the result has ", choice.num_tiles, " tiles, expected at most ", kMostTiles);
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem&) { return 0; }

Structure structure_of(const BsrMatrixView& m) {
  return {m.row_offsets, m.col_indices,      m.value_indices,
          m.nnz(),       m.num_block_rows(), m.num_block_cols()};
}

/// `free_axis` of a (rows, cols) matrix; the other one is k.
Operand operand_of(const MatrixOperand& matrix, const Access& access, int free_axis) {
  const TensorView& tensor = matrix.sparse ? matrix.sparse->values : matrix.dense;
  const int first = matrix.sparse ? 1 : 0;  // axis of the rows
  const int free = first + free_axis, k = first + 1 - free_axis;
  Operand operand;
  operand.data = tensor.data;
  if (matrix.sparse) operand.block_stride = tensor.stride[0];
  operand.free_stride = tensor.stride[free];
  operand.k_stride = tensor.stride[k];
  operand.k_inner = access.axis != free;
  operand.vectors = access.axis >= 0 && access.alignment >= 16;
  return operand;
}

Result result_of(const MatrixOperand& matrix, bool transposed) {
  const TensorView& tensor = matrix.sparse ? matrix.sparse->values : matrix.dense;
  const int first = matrix.sparse ? 1 : 0;
  return {tensor.data, matrix.sparse ? tensor.stride[0] : 0,
          tensor.stride[first + (transposed ? 1 : 0)], tensor.stride[first + (transposed ? 0 : 1)]};
}

Walk walk_of(Product product) {
  switch (product) {
    case Product::sparse_dense: return Walk::row;
    case Product::dense_sparse: return Walk::column;
    case Product::sparse_sparse: return Walk::row_match;
    default: return Walk::all;
  }
}

Params make_params(const Problem& p, const BsrGemmArgs& args, const Choice& choice) {
  const Sides& s = choice.sides;
  Params params;
  params.left =
      s.transposed ? operand_of(args.b, p.b_access, 1) : operand_of(args.a, p.a_access, 0);
  params.right =
      s.transposed ? operand_of(args.a, p.a_access, 0) : operand_of(args.b, p.b_access, 1);
  params.left.extent = s.rows;
  params.left.block = static_cast<std::int32_t>(s.block_rows);
  params.right.extent = s.cols;
  params.right.block = static_cast<std::int32_t>(s.block_cols);
  params.out = result_of(args.out, s.transposed);
  if (args.beta != 0) params.c = result_of(args.c, s.transposed);
  const MatrixOperand& left = s.transposed ? args.b : args.a;
  const MatrixOperand& right = s.transposed ? args.a : args.b;
  if (left.sparse) params.lists = structure_of(*left.sparse);
  if (right.sparse) params.right_lists = structure_of(*right.sparse);
  if (args.out.sparse) params.out_lists = structure_of(*args.out.sparse);
  params.walk = walk_of(p.product);
  params.sampled = p.product == Product::sampled;
  params.transposed = s.transposed;
  params.wide_out = p.out_dtype == DType::float32;
  params.block_k = static_cast<std::int32_t>(p.a_block.cols > 0 ? p.a_block.cols : p.b_block.rows);
  params.k = p.k;
  params.row_parts = static_cast<std::uint32_t>(choice.row_parts);
  params.col_parts = static_cast<std::uint32_t>(choice.col_parts);
  params.row_tiles = static_cast<std::uint32_t>(choice.row_tiles);
  params.num_tiles = static_cast<std::uint32_t>(choice.num_tiles);
  if (!params.sampled) params.col_tiles = params.num_tiles / params.row_tiles;
  params.run = choice.run;
  params.alpha = args.alpha;
  params.beta = args.beta;
  return params;
}

void run(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const std::int64_t nnz = args.out.sparse ? args.out.sparse->nnz() : 0;
  Choice choice = choose(p, nnz);
  if (choice.num_tiles == 0) return;
  const BsrMatrixView* sparse = args.a.sparse   ? &*args.a.sparse
                                : args.b.sparse ? &*args.b.sparse
                                                : nullptr;
  if (sparse != nullptr) choice.run = choose_run(choice, p, sparse->nnz());
  require(choice.num_tiles <= kMostTiles, ErrorKind::unsupported, "bsr_gemm: wmma takes at most ",
          kMostTiles, " tiles, got ", choice.num_tiles);
  if (log_enabled()) log_once(cat("bsr_gemm wmma ", to_string(choice)));
  choice.kernel->launch(p.dtype, make_params(p, args, choice),
                        static_cast<cudaStream_t>(args.stream));
}

}  // namespace

BsrGemmBackend backend() { return {"wmma", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::bsr::wmma
