#include <algorithm>

#include "bsr_gemm/cpu/operands.h"
#include "bsr_gemm/cpu/products.h"
#include "core/cpu_gemm.h"
#include "core/integers.h"
#include "core/threads.h"

namespace sparsek::bsr::cpu {
namespace {

constexpr std::int64_t kPanelCols = 256;
// A block of at least so many rows uses each row of b often enough to pay for a copy.
constexpr std::int64_t kCopyFromRows = 16;

}  // namespace

void multiply_left_sparse(const Problem& problem, const BsrGemmArgs& args) {
  const BsrMatrixView& a = *args.a.sparse;
  const MatrixRef b = matrix_ref(args.b.dense), out = matrix_ref(args.out.dense);
  const MatrixRef c = matrix_ref(args.c.dense);
  const std::int64_t block_rows = a.block_rows(), block_cols = a.block_cols();
  const std::int64_t num_panels = ceil_div(problem.n, kPanelCols);
  const std::int64_t num_tasks = a.num_block_rows() * num_panels;
  const double flops =
      2.0 * static_cast<double>(a.values.num_elements()) * static_cast<double>(problem.n);

  run_tasks(num_tasks, flops / static_cast<double>(num_tasks), [&](TaskQueue& tasks) {
    const std::int64_t ld = padded_row(kPanelCols);
    FloatBuffer sum(block_rows * ld), a_buffer, b_buffer;
    for (std::int64_t task; tasks.next(&task);) {
      const std::int64_t row = task / num_panels;
      const std::int64_t col = task % num_panels * kPanelCols;
      const std::int64_t cols = std::min(kPanelCols, problem.n - col);
      std::fill_n(sum.data(), block_rows * ld, 0.0f);
      const EntryRange entries = args.alpha == 0 ? EntryRange{} : block_row(a, row);
      for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
        const std::int64_t k_block = block_col(a, entry);
        MatrixRef block;
        if (k_block < 0 || !block_values(a, entry, &block)) continue;
        const Left left = as_left(block, false, &a_buffer);
        const Right right = as_right(b.part(k_block * block_cols, col, block_cols, cols),
                                     block_rows >= kCopyFromRows, &b_buffer);
        cpu_gemm(block_rows, cols, block_cols, left.data, left.row_stride, left.col_stride,
                 right.data, right.ld, sum.data(), ld, true);
      }
      const MatrixRef c_part =
          args.beta == 0 ? MatrixRef{} : c.part(row * block_rows, col, block_rows, cols);
      write_result(sum.data(), ld, out.part(row * block_rows, col, block_rows, cols), args.alpha,
                   args.beta == 0 ? nullptr : &c_part, args.beta);
    }
  });
}

}  // namespace sparsek::bsr::cpu
