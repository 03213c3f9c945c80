#include "bsr_gemm/problem.h"

#include <cmath>

#include "core/checks.h"
#include "core/extent.h"
#include "core/message.h"

namespace sparsek::bsr {
namespace {

constexpr std::int64_t kMaxBlock = 256;

BlockShape block_of(const MatrixOperand& operand) {
  if (!operand.sparse) return {};
  return {operand.sparse->block_rows(), operand.sparse->block_cols()};
}

double density_of(const MatrixOperand& operand) {
  if (!operand.sparse || operand.rows() == 0 || operand.cols() == 0) return 1;
  return bsr::density_of(*operand.sparse);
}

void check_operand(const char* name, const MatrixOperand& operand) {
  require_value(operand.given(), name, ": expected a matrix, got none");
  if (operand.sparse) {
    check_sparse(name, *operand.sparse);
  } else {
    check_tensor(name, operand.dense, 2);
  }
}

void check_shape(const char* name, const MatrixOperand& operand, std::int64_t rows,
                 std::int64_t cols) {
  require_value(operand.rows() == rows && operand.cols() == cols, name, ": expected shape (", rows,
                ", ", cols, "), got (", operand.rows(), ", ", operand.cols(), ")");
}

/// As if `axis` were contiguous.
int alignment_along(const TensorView& tensor, int axis) {
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(tensor.data) | 16u;
  for (int other = 0; other < tensor.rank; ++other) {
    // The stride of an axis with one element is never used, and frameworks fill it with anything.
    if (other == axis || tensor.shape[other] <= 1) continue;
    if (tensor.stride[other] < 0) return 0;
    bits |= static_cast<std::uint64_t>(tensor.stride[other]) * size_of(tensor.dtype);
  }
  return static_cast<int>(bits & (~bits + 1));
}

/// Of the last two axes the contiguous one; where both are, the one that leaves the better
/// alignment.
Access access_of(const TensorView& tensor) {
  if (tensor.num_elements() == 0) return {tensor.rank - 1, 16};
  Access best;
  best.alignment = 0;
  for (int axis = tensor.rank - 1; axis >= tensor.rank - 2; --axis) {
    if (tensor.stride[axis] != 1 && tensor.shape[axis] > 1) continue;
    const int alignment = alignment_along(tensor, axis);
    if (best.axis < 0 || alignment > best.alignment) best = {axis, alignment};
  }
  best.bytes = Extent(tensor).bytes;
  return best;
}

Product product_of(const BsrGemmArgs& args) {
  const bool a = args.a.sparse.has_value(), b = args.b.sparse.has_value();
  if (args.out.sparse) {
    require(!a && !b, ErrorKind::unsupported,
            "out: a product sampled at a pattern is that of two dense matrices, got ",
            a ? "a" : "b", " block-sparse");
    return Product::sampled;
  }
  if (!a && !b) return Product::dense;
  return a && b ? Product::sparse_sparse : a ? Product::sparse_dense : Product::dense_sparse;
}

}  // namespace

double density_of(const BsrMatrixView& matrix) {
  const auto stored = static_cast<double>(matrix.values.num_elements());
  return stored / static_cast<double>(matrix.rows) / static_cast<double>(matrix.cols);
}

void check_sparse(const char* name, const BsrMatrixView& matrix) {
  check_tensor(cat(name, ".values").c_str(), matrix.values, 3);
  for (const std::int64_t extent : {matrix.block_rows(), matrix.block_cols()}) {
    require_value(extent >= 1 && extent <= kMaxBlock, name, ": expected a block shape from 1x1 to ",
                  kMaxBlock, "x", kMaxBlock, ", got ", matrix.block_rows(), "x",
                  matrix.block_cols());
  }
  require_value(matrix.rows >= 0 && matrix.rows % matrix.block_rows() == 0, name,
                ": expected rows that are a multiple of the block's ", matrix.block_rows(),
                ", got ", matrix.rows);
  require_value(matrix.cols >= 0 && matrix.cols % matrix.block_cols() == 0, name,
                ": expected columns that are a multiple of the block's ", matrix.block_cols(),
                ", got ", matrix.cols);
  require_value(matrix.row_offsets != nullptr, name, ": expected row_offsets, got null");
  require_value(matrix.col_indices != nullptr || matrix.nnz() == 0, name,
                ": expected col_indices for ", matrix.nnz(), " blocks, got null");
}

Problem make_problem(const BsrGemmArgs& args) {
  check_operand("a", args.a);
  check_operand("b", args.b);
  check_operand("out", args.out);
  const TensorView &a = args.a.values(), &b = args.b.values(), &out = args.out.values();

  Problem problem;
  problem.product = product_of(args);
  problem.m = args.a.rows();
  problem.k = args.a.cols();
  problem.n = args.b.cols();
  require_value(args.b.rows() == problem.k, "b: expected ", problem.k,
                " rows (the columns of a), got shape (", args.b.rows(), ", ", problem.n, ")");
  check_shape("out", args.out, problem.m, problem.n);
  if (problem.product == Product::sparse_sparse) {
    require_value(block_of(args.a).cols == block_of(args.b).rows, "b: expected blocks of ",
                  block_of(args.a).cols, " rows (the columns of a's blocks), got ",
                  block_of(args.b).rows, "x", block_of(args.b).cols);
  }
  check_same_dtype("b", b, "a", a.dtype);
  require(out.dtype == a.dtype || out.dtype == DType::float32, ErrorKind::invalid_type,
          "out: expected dtype float32 or that of a (", to_string(a.dtype), "), got ",
          to_string(out.dtype));
  check_same_device("b", b.device, "a", a.device);
  check_same_device("out", out.device, "a", a.device);
  check_own_elements("out", out);
  require_value(std::isfinite(args.alpha), "alpha: expected a finite number, got ", args.alpha);
  require_value(std::isfinite(args.beta), "beta: expected a finite number, got ", args.beta);
  if (args.beta != 0) {
    check_operand("c", args.c);
    const TensorView& c = args.c.values();
    check_shape("c", args.c, problem.m, problem.n);
    check_same_dtype("c", c, "out", out.dtype);
    check_same_device("c", c.device, "a", a.device);
    require_value(args.c.sparse.has_value() == args.out.sparse.has_value(), "c: expected a ",
                  args.out.sparse ? "block-sparse" : "dense", " matrix, as out, got a ",
                  args.c.sparse ? "block-sparse" : "dense", " one");
    if (args.c.sparse) {
      require_value(c.shape == out.shape, "c: expected the pattern of out, values ",
                    shape_string(out), ", got ", shape_string(c));
    }
  }

  problem.a_block = block_of(args.a);
  problem.b_block = block_of(args.b);
  problem.out_block = block_of(args.out);
  problem.dtype = a.dtype;
  problem.out_dtype = out.dtype;
  problem.a_access = access_of(a);
  problem.b_access = access_of(b);
  problem.out_access = access_of(out);
  problem.adds_c = args.beta != 0;
  problem.c_access = problem.adds_c ? access_of(args.c.values()) : Access{};
  problem.a_density = density_of(args.a);
  problem.b_density = density_of(args.b);
  problem.out_blocks = args.out.sparse ? args.out.sparse->nnz() : 0;
  problem.forced = !args.backend.empty();
  problem.workspace_offered = args.workspace != nullptr;
  problem.a_planned = args.a_plan != nullptr;
  problem.b_planned = args.b_plan != nullptr;
  problem.out_planned = args.out_plan != nullptr;
  problem.device = device_info(a.device);
  return problem;
}

std::string to_string(const Problem& p) {
  const auto operand = [](const BlockShape& block) {
    return block.rows == 0 ? std::string("dense") : cat("BSR ", block.rows, "x", block.cols);
  };
  return cat(operand(p.a_block), " x ", operand(p.b_block), " -> ", operand(p.out_block),
             " m=", p.m, " n=", p.n, " k=", p.k, " dtype=", to_string(p.dtype),
             " out_dtype=", to_string(p.out_dtype), " device=", to_string(p.device.device));
}

}  // namespace sparsek::bsr
