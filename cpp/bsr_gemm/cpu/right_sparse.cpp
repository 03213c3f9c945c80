#include <algorithm>

#include "bsr_gemm/cpu/operands.h"
#include "bsr_gemm/cpu/products.h"
#include "core/cpu_gemm.h"
#include "core/integers.h"
#include "core/threads.h"

namespace sparsek::bsr::cpu {
namespace {

constexpr std::int64_t kDensePanelRows = 128;
constexpr std::int64_t kStripeCols = 1024;
constexpr std::int64_t kFewTasks = 32;

/// How out is cut. Every task reads the whole structure of the rows of b that it needs and leaves
/// out what lies beyond its stripe of columns, so stripes are as wide as the scratch allows, unless
/// there would be too few tasks.
struct Cut {
  std::int64_t panel_rows;
  std::int64_t num_panels;
  std::int64_t stripe_blocks;  // columns, in blocks of b
  std::int64_t num_stripes;
};

Cut make_cut(const Problem& problem) {
  Cut cut;
  cut.panel_rows = problem.a_block.rows > 0 ? problem.a_block.rows : kDensePanelRows;
  cut.num_panels = ceil_div(problem.m, cut.panel_rows);
  const std::int64_t num_blocks = problem.n / problem.b_block.cols;
  const std::int64_t most = std::max<std::int64_t>(1, kStripeCols / problem.b_block.cols);
  const std::int64_t wanted =
      ceil_div(num_blocks * std::max<std::int64_t>(1, cut.num_panels), kFewTasks);
  cut.stripe_blocks = std::clamp<std::int64_t>(wanted, 1, most);
  cut.num_stripes = ceil_div(num_blocks, cut.stripe_blocks);
  return cut;
}

/// One panel of rows and stripe of columns of out.
class PanelWorker {
 public:
  PanelWorker(const Problem& problem, const BsrGemmArgs& args, const Cut& cut)
      : problem_(problem),
        args_(args),
        cut_(cut),
        b_(*args.b.sparse),
        ld_(padded_row(cut.stripe_blocks * problem.b_block.cols)),
        sum_(cut.panel_rows * ld_) {}

  void run(std::int64_t panel, std::int64_t stripe) {
    row_ = panel * cut_.panel_rows;
    rows_ = std::min(cut_.panel_rows, problem_.m - row_);
    block_begin_ = stripe * cut_.stripe_blocks;
    block_end_ = std::min(block_begin_ + cut_.stripe_blocks, b_.num_block_cols());
    std::fill_n(sum_.data(), rows_ * ld_, 0.0f);
    if (args_.alpha != 0) {
      if (args_.a.sparse) {
        add_sparse_rows(*args_.a.sparse, panel);
      } else {
        add_dense_rows(matrix_ref(args_.a.dense));
      }
    }
    const std::int64_t col = block_begin_ * problem_.b_block.cols;
    const std::int64_t cols = (block_end_ - block_begin_) * problem_.b_block.cols;
    const bool reads_c = args_.beta != 0;
    const MatrixRef c =
        reads_c ? matrix_ref(args_.c.dense).part(row_, col, rows_, cols) : MatrixRef{};
    write_result(sum_.data(), ld_, matrix_ref(args_.out.dense).part(row_, col, rows_, cols),
                 args_.alpha, reads_c ? &c : nullptr, args_.beta);
  }

 private:
  void add_dense_rows(const MatrixRef& a) {
    for (std::int64_t k_block = 0; k_block < b_.num_block_rows(); ++k_block) {
      const std::int64_t depth = problem_.b_block.rows;
      add_product(a.part(row_, k_block * depth, rows_, depth), k_block);
    }
  }

  void add_sparse_rows(const BsrMatrixView& a, std::int64_t row) {
    const EntryRange entries = block_row(a, row);
    for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
      const std::int64_t k_block = block_col(a, entry);
      MatrixRef block;
      if (k_block >= 0 && block_values(a, entry, &block)) add_product(block, k_block);
    }
  }

  /// sum += `a_block` times what block row `k_block` of b holds of the stripe.
  void add_product(const MatrixRef& a_block, std::int64_t k_block) {
    Left left{};
    const EntryRange entries = block_row(b_, k_block);
    for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
      const std::int64_t col = block_col(b_, entry);
      MatrixRef block;
      if (col < block_begin_ || col >= block_end_ || !block_values(b_, entry, &block)) continue;
      if (left.data == nullptr) left = as_left(a_block, false, &a_buffer_);
      const Right right = as_right(block, false, &b_buffer_);
      cpu_gemm(rows_, block.cols, block.rows, left.data, left.row_stride, left.col_stride,
               right.data, right.ld, sum_.data() + (col - block_begin_) * block.cols, ld_, true);
    }
  }

  const Problem& problem_;
  const BsrGemmArgs& args_;
  const Cut& cut_;
  const BsrMatrixView& b_;
  std::int64_t row_ = 0, rows_ = 0;
  std::int64_t block_begin_ = 0, block_end_ = 0;
  std::int64_t ld_;
  FloatBuffer sum_, a_buffer_, b_buffer_;
};

double flops_of(const Problem& problem, const BsrGemmArgs& args) {
  const double b_values = static_cast<double>(args.b.sparse->values.num_elements());
  if (!args.a.sparse) return 2.0 * static_cast<double>(problem.m) * b_values;
  const double a_values = static_cast<double>(args.a.sparse->values.num_elements());
  return 2.0 * a_values * b_values / static_cast<double>(std::max<std::int64_t>(problem.k, 1));
}

}  // namespace

void multiply_right_sparse(const Problem& problem, const BsrGemmArgs& args) {
  const Cut cut = make_cut(problem);
  const std::int64_t num_tasks = cut.num_panels * cut.num_stripes;
  const double flops = flops_of(problem, args);
  run_tasks(num_tasks, flops / static_cast<double>(num_tasks), [&](TaskQueue& tasks) {
    PanelWorker worker(problem, args, cut);
    for (std::int64_t task; tasks.next(&task);) {
      worker.run(task / cut.num_stripes, task % cut.num_stripes);
    }
  });
}

}  // namespace sparsek::bsr::cpu
