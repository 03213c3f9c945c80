#pragma once

#include <cstdint>

namespace sparsek {

/// c (m, n) = a (m, k) b (k, n), or += with `accumulate`; float32 on one thread.
///
/// Rows of b and c are contiguous, `ldb` and `ldc` apart. a is only ever broadcast element by
/// element, so it has any strides: a transposed or gathered operand goes on the left. Each element
/// of c is one chain of multiply-adds in the order of k, whatever m and n. Best with b in the
/// cache: k and n of at most a few hundred.
void cpu_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
              std::int64_t a_row_stride, std::int64_t a_col_stride, const float* b,
              std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate);

}  // namespace sparsek
