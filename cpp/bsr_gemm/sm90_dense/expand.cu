// A block-sparse matrix as a dense one.

#include <cstdint>

#include "bsr_gemm/sm90_dense/kernels.h"
#include "core/cuda_check.h"
#include "core/integers.h"

namespace sparsek::bsr::sm90_dense {
namespace {

// A CTA writes so many rows and columns. Blocks have 16 at least each way.
constexpr int kRows = 128, kCols = 512;
constexpr int kThreads = 256;
constexpr int kUnit = 8;  // elements of 16 bytes
constexpr int kTable = (kRows / 16) * (kCols / 16);

struct Structure {
  const std::int64_t* row_offsets;
  const std::int32_t* col_indices;
  const std::int32_t* value_indices;
  std::int64_t nnz;
  std::int64_t rows, cols;  // of elements
  int log2_block_rows, log2_block_cols;
};

struct Values {
  const std::uint16_t* data;
  std::int64_t block_stride;
  std::int64_t line_stride;  // of the axis that is not contiguous
};

/// table[col_block * row_blocks + row_block]: which of the values lies there, or -1.
__device__ void fill_table(const Structure& s, std::int64_t first_row, std::int64_t first_col,
                           std::int32_t* table) {
  const std::int64_t block_rows = s.rows >> s.log2_block_rows;
  const std::int64_t first = first_row >> s.log2_block_rows;
  const std::int64_t col_begin = first_col >> s.log2_block_cols;
  const std::int64_t col_end =
      min(col_begin + (kCols >> s.log2_block_cols), s.cols >> s.log2_block_cols);
  const int row_blocks = kRows >> s.log2_block_rows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int row = warp; row < row_blocks; row += kThreads / 32) {
    if (first + row >= block_rows) break;
    const std::int64_t begin = max(s.row_offsets[first + row], std::int64_t{0});
    const std::int64_t end = min(s.row_offsets[first + row + 1], s.nnz);
    for (std::int64_t entry = begin + lane; entry < end; entry += 32) {
      const std::int64_t col = s.col_indices[entry];
      if (col < col_begin || col >= col_end) continue;
      const std::int64_t value = s.value_indices != nullptr ? s.value_indices[entry] : entry;
      if (value < 0 || value >= s.nnz) continue;
      atomicMax(&table[(col - col_begin) * row_blocks + row], static_cast<std::int32_t>(value));
    }
  }
}

/// kAcross: the columns are the lines, the rows are contiguous, in the values and in the copy.
template <bool kAcross>
__global__ void __launch_bounds__(kThreads)
    expand_kernel(const Structure s, const Values values, std::uint16_t* to, std::int64_t stride) {
  __shared__ std::int32_t table[kTable];
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kRows;
  const std::int64_t first_col = std::int64_t{blockIdx.y} * kCols;
  for (int i = threadIdx.x; i < kTable; i += kThreads) table[i] = -1;
  __syncthreads();
  fill_table(s, first_row, first_col, table);
  __syncthreads();

  constexpr int kUnits = (kAcross ? kRows : kCols) / kUnit;  // of a line
  const int row_blocks = kRows >> s.log2_block_rows;
  const int row_mask = (1 << s.log2_block_rows) - 1, col_mask = (1 << s.log2_block_cols) - 1;
#pragma unroll 8
  for (int i = threadIdx.x; i < kRows * kCols / kUnit; i += kThreads) {
    const int line = i / kUnits, inner = i % kUnits * kUnit;
    const int row = kAcross ? inner : line, col = kAcross ? line : inner;
    if (first_row + row >= s.rows || first_col + col >= s.cols) continue;
    const std::int32_t value =
        table[(col >> s.log2_block_cols) * row_blocks + (row >> s.log2_block_rows)];
    const int r = row & row_mask, c = col & col_mask;
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (value >= 0) {
      unit = __ldcs(reinterpret_cast<const uint4*>(values.data + value * values.block_stride +
                                                   (kAcross ? c : r) * values.line_stride +
                                                   (kAcross ? r : c)));
    }
    const std::int64_t at = kAcross ? (first_col + col) * stride + first_row + row
                                    : (first_row + row) * stride + first_col + col;
    *reinterpret_cast<uint4*>(to + at) = unit;
  }
}

}  // namespace

void expand(const BsrMatrixView& matrix, const DenseMatrix& to, cudaStream_t stream) {
  const Structure structure{matrix.row_offsets,
                            matrix.col_indices,
                            matrix.value_indices,
                            matrix.nnz(),
                            matrix.rows,
                            matrix.cols,
                            log2_of(matrix.block_rows()),
                            log2_of(matrix.block_cols())};
  const bool across = to.contiguous_axis == 0;
  const Values values{static_cast<const std::uint16_t*>(matrix.values.data),
                      matrix.values.stride[0], matrix.values.stride[across ? 2 : 1]};
  const dim3 grid(static_cast<unsigned>(ceil_div(matrix.rows, kRows)),
                  static_cast<unsigned>(ceil_div(matrix.cols, kCols)));
  const auto kernel = across ? expand_kernel<true> : expand_kernel<false>;
  kernel<<<grid, kThreads, 0, stream>>>(structure, values, static_cast<std::uint16_t*>(to.data),
                                        to.stride);
  cuda_check(cudaGetLastError(), "bsr_gemm: sm90_dense");
}

}  // namespace sparsek::bsr::sm90_dense
