#include <cmath>
#include <memory>
#include <vector>

#include "check.h"
#include "core/cpu_gemm.h"
#include "random_array.h"

using namespace sparsek;

namespace {

/// Arrays of exactly the size that is needed: the address sanitizer sees any access beyond.
void test_case(std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool accumulate) {
  const std::int64_t ldb = n + random_int(0, 3), ldc = n + random_int(0, 3);
  const std::int64_t row_stride = a_transposed ? 1 : k + 1, col_stride = a_transposed ? m + 2 : 1;
  const auto size = [](std::int64_t rows, std::int64_t cols, std::int64_t rs, std::int64_t cs) {
    return rows == 0 || cols == 0 ? 0 : (rows - 1) * rs + (cols - 1) * cs + 1;
  };
  const std::vector<float> a = random_floats(size(m, k, row_stride, col_stride));
  const std::vector<float> b = random_floats(size(k, n, ldb, 1));
  const std::vector<float> before =
      accumulate ? random_floats(size(m, n, ldc, 1))
                 : std::vector<float>(static_cast<std::size_t>(size(m, n, ldc, 1)), kPoison);
  std::vector<float> c = before;
  cpu_gemm(m, n, k, a.data(), row_stride, col_stride, b.data(), ldb, c.data(), ldc, accumulate);

  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < ldc && i * ldc + j < static_cast<std::int64_t>(c.size()); ++j) {
      const float got = c[i * ldc + j], old = before[i * ldc + j];
      if (j >= n) {
        CHECK(got == old || (std::isnan(got) && std::isnan(old)), m, n, k, i, j, got, old);
        continue;
      }
      double sum = accumulate ? old : 0.0, magnitude = std::abs(sum);
      for (std::int64_t p = 0; p < k; ++p) {
        const double product = double(a[i * row_stride + p * col_stride]) * b[p * ldb + j];
        sum += product;
        magnitude += std::abs(product);
      }
      CHECK(std::abs(got - sum) <= 6e-8 * double(k + 1) * magnitude, m, n, k, i, j, got, sum);
    }
  }
}

/// A row or column of c does not depend on how many others there are.
void test_independent_of_shape() {
  const std::int64_t m = 29, n = 67, k = 150;
  const std::vector<float> a = random_floats(m * k), b = random_floats(k * n);
  std::vector<float> all(static_cast<std::size_t>(m * n), kPoison), one(1, kPoison);
  cpu_gemm(m, n, k, a.data(), k, 1, b.data(), n, all.data(), n, false);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      cpu_gemm(1, 1, k, a.data() + i * k, k, 1, b.data() + j, n, one.data(), 1, false);
      CHECK_EQ(all[i * n + j], one[0], i, j);
    }
  }
}

}  // namespace

int main() {
  for (std::int64_t m = 0; m < 20; ++m) {
    for (std::int64_t n = 0; n < 70; ++n) test_case(m, n, random_int(0, 12), n % 2, m % 2);
  }
  for (const std::int64_t size : {31, 64, 129, 300}) {
    for (const bool flag : {false, true}) {
      test_case(size, 48, 17, flag, !flag);
      test_case(33, size, 65, flag, flag);
      test_case(9, 37, size, flag, !flag);
      test_case(size, size, 128, flag, flag);
    }
  }
  test_independent_of_shape();
  return failures() != 0;
}
