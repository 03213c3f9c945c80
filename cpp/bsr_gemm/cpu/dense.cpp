#include <algorithm>

#include "bsr_gemm/cpu/operands.h"
#include "bsr_gemm/cpu/products.h"
#include "core/cpu_gemm.h"
#include "core/integers.h"
#include "core/threads.h"

namespace sparsek::bsr::cpu {
namespace {

constexpr std::int64_t kPanelRows = 64, kPanelCols = 256, kDepth = 256;

}  // namespace

void multiply_dense(const Problem& problem, const BsrGemmArgs& args) {
  const MatrixRef a = matrix_ref(args.a.dense), b = matrix_ref(args.b.dense);
  const MatrixRef c = matrix_ref(args.c.dense), out = matrix_ref(args.out.dense);
  const std::int64_t row_panels = ceil_div(problem.m, kPanelRows);
  const std::int64_t col_panels = ceil_div(problem.n, kPanelCols);
  const double flops = 2.0 * kPanelRows * kPanelCols * static_cast<double>(problem.k);

  run_tasks(row_panels * col_panels, flops, [&](TaskQueue& tasks) {
    const std::int64_t ld = padded_row(kPanelCols);
    FloatBuffer sum(kPanelRows * ld), a_buffer, b_buffer;
    for (std::int64_t task; tasks.next(&task);) {
      const std::int64_t row = task / col_panels * kPanelRows;
      const std::int64_t col = task % col_panels * kPanelCols;
      const std::int64_t rows = std::min(kPanelRows, problem.m - row);
      const std::int64_t cols = std::min(kPanelCols, problem.n - col);
      std::fill_n(sum.data(), rows * ld, 0.0f);
      const std::int64_t depth_end = args.alpha == 0 ? 0 : problem.k;
      for (std::int64_t k = 0; k < depth_end; k += kDepth) {
        const std::int64_t depth = std::min(kDepth, problem.k - k);
        const Left left = as_left(a.part(row, k, rows, depth), false, &a_buffer);
        const Right right = as_right(b.part(k, col, depth, cols), true, &b_buffer);
        cpu_gemm(rows, cols, depth, left.data, left.row_stride, left.col_stride, right.data,
                 right.ld, sum.data(), ld, true);
      }
      const MatrixRef c_part = args.beta == 0 ? MatrixRef{} : c.part(row, col, rows, cols);
      write_result(sum.data(), ld, out.part(row, col, rows, cols), args.alpha,
                   args.beta == 0 ? nullptr : &c_part, args.beta);
    }
  });
}

}  // namespace sparsek::bsr::cpu
