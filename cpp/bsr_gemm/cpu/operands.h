#pragma once

#include <cstdint>

#include "core/cpu_math.h"
#include "core/float_buffer.h"
#include "sparsek/bsr_gemm.h"

namespace sparsek::bsr::cpu {

MatrixRef matrix_ref(const TensorView& dense);

/// The entries of a block row, clamped to what the arrays hold; may be empty (begin >= end).
struct EntryRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
EntryRange block_row(const BsrMatrixView& matrix, std::int64_t row);

/// The block column of an entry, or -1 where it is out of range.
std::int64_t block_col(const BsrMatrixView& matrix, std::int64_t entry);

/// The values of an entry. False where its value index is out of range.
bool block_values(const BsrMatrixView& matrix, std::int64_t entry, MatrixRef* block);

/// A left operand of cpu_gemm: float32 of any strides.
struct Left {
  const float* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};
/// In place, if float32 and without `copy`; else converted, in the order in which it lies in
/// memory. A copy pays when neighbours in memory are used far apart in time.
Left as_left(const MatrixRef& matrix, bool copy, FloatBuffer* buffer);

/// A right operand of cpu_gemm: float32 rows.
struct Right {
  const float* data;
  std::int64_t ld;
};
/// In place, if float32 with contiguous rows and without `copy`, which pays when rows lie far apart
/// and are used often.
Right as_right(const MatrixRef& matrix, bool copy, FloatBuffer* buffer);

/// out = alpha * sum + beta * c; `c` may be null (beta == 0), or out itself.
void write_result(float* sum, std::int64_t ld, const MatrixRef& out, float alpha,
                  const MatrixRef* c, float beta);

}  // namespace sparsek::bsr::cpu
