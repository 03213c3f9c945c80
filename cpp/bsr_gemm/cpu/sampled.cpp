#include <algorithm>

#include "bsr_gemm/cpu/operands.h"
#include "bsr_gemm/cpu/products.h"
#include "core/cpu_gemm.h"
#include "core/threads.h"

namespace sparsek::bsr::cpu {
namespace {

constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kGroup = 16;  // blocks of a row that share one pass over its rows of a

/// One block row of out. Blocks are computed transposed, out^T = b^T a^T: the panel of a that all
/// blocks of the row share is then the one that has to be turned around, not the panel of b that
/// each has for itself.
class BlockRowWorker {
 public:
  BlockRowWorker(const Problem& problem, const BsrGemmArgs& args)
      : problem_(problem),
        args_(args),
        out_(*args.out.sparse),
        a_(matrix_ref(args.a.dense)),
        b_(matrix_ref(args.b.dense)),
        ld_(padded_row(out_.block_rows())),
        sums_(kGroup * out_.block_cols() * ld_),
        a_buffer_(kDepth * ld_) {}

  void run(std::int64_t row) {
    const EntryRange entries = block_row(out_, row);
    std::int64_t group[kGroup];
    std::int64_t size = 0;
    for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
      MatrixRef block;
      if (block_col(out_, entry) < 0 || !block_values(out_, entry, &block)) continue;
      group[size++] = entry;
      if (size == kGroup) {
        compute(row, group, size);
        size = 0;
      }
    }
    if (size > 0) compute(row, group, size);
  }

 private:
  float* sum(std::int64_t member) const { return sums_.data() + member * out_.block_cols() * ld_; }

  void compute(std::int64_t row, const std::int64_t* group, std::int64_t size) {
    const std::int64_t block_rows = out_.block_rows(), block_cols = out_.block_cols();
    std::fill_n(sums_.data(), size * block_cols * ld_, 0.0f);
    const std::int64_t depth_end = args_.alpha == 0 ? 0 : problem_.k;
    for (std::int64_t k = 0; k < depth_end; k += kDepth) {
      const std::int64_t depth = std::min(kDepth, problem_.k - k);
      load_matrix(a_.part(row * block_rows, k, block_rows, depth).transposed(), a_buffer_.data(),
                  ld_);
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t col = block_col(out_, group[i]) * block_cols;
        const MatrixRef b = b_.part(k, col, depth, block_cols).transposed();
        const Left left = as_left(b, !b.rows_contiguous(), &b_buffer_);
        cpu_gemm(block_cols, block_rows, depth, left.data, left.row_stride, left.col_stride,
                 a_buffer_.data(), ld_, sum(i), ld_, true);
      }
    }
    for (std::int64_t i = 0; i < size; ++i) write(group[i], sum(i));
  }

  void write(std::int64_t entry, float* sum) const {
    MatrixRef out, c;
    block_values(out_, entry, &out);
    const bool reads_c = args_.beta != 0 && block_values(*args_.c.sparse, entry, &c);
    c = c.transposed();
    write_result(sum, ld_, out.transposed(), args_.alpha, reads_c ? &c : nullptr, args_.beta);
  }

  const Problem& problem_;
  const BsrGemmArgs& args_;
  const BsrMatrixView& out_;
  MatrixRef a_, b_;
  std::int64_t ld_;
  FloatBuffer sums_, a_buffer_, b_buffer_;
};

}  // namespace

void multiply_sampled(const Problem& problem, const BsrGemmArgs& args) {
  const BsrMatrixView& out = *args.out.sparse;
  const std::int64_t num_rows = out.num_block_rows();
  const double flops =
      2.0 * static_cast<double>(out.values.num_elements()) * static_cast<double>(problem.k);
  run_tasks(num_rows, flops / static_cast<double>(num_rows), [&](TaskQueue& tasks) {
    BlockRowWorker worker(problem, args);
    for (std::int64_t row; tasks.next(&row);) worker.run(row);
  });
}

}  // namespace sparsek::bsr::cpu
