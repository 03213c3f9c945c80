// The CPU backend against the product in float64, element by element.
#include <cmath>
#include <limits>
#include <vector>

#include "bsr_gemm/random_bsr.h"
#include "check.h"
#include "sparsek/bsr_gemm.h"
#include "sparsek/threads.h"

using namespace sparsek;

namespace {

/// A dense matrix that owns its memory; row-major, column-major or with gaps everywhere.
struct Dense {
  enum Layout { by_rows, by_columns, spread };
  Array memory;
  TensorView view;

  Dense(DType dtype, std::int64_t rows, std::int64_t cols, int layout, bool poisoned = false) {
    view.dtype = dtype;
    view.rank = 2;
    view.shape = {rows, cols};
    view.stride = layout == by_rows      ? decltype(view.stride){cols + 1, 1}
                  : layout == by_columns ? decltype(view.stride){1, rows + 2}
                                         : decltype(view.stride){2 * cols + 3, 2};
    const std::int64_t size = 2 * (rows + 2) * (cols + 2);
    memory = poisoned ? Array(dtype, size, kPoison) : Array(dtype, random_floats(size));
    view.data = memory.data();
  }
  Dense(const Dense&) = delete;

  std::vector<double> values() const {
    const std::vector<float> all = memory.floats();
    std::vector<double> result;
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      for (std::int64_t j = 0; j < view.shape[1]; ++j) {
        result.push_back(all[static_cast<std::size_t>(i * view.stride[0] + j * view.stride[1])]);
      }
    }
    return result;
  }
};

struct Expected {
  std::vector<double> sum, magnitude;
};

Expected multiply(const std::vector<double>& a, const std::vector<double>& b, std::int64_t m,
                  std::int64_t n, std::int64_t k) {
  Expected result{std::vector<double>(static_cast<std::size_t>(m * n)),
                  std::vector<double>(static_cast<std::size_t>(m * n))};
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t j = 0; j < n; ++j) {
        const double product = a[i * k + p] * b[p * n + j];
        result.sum[i * n + j] += product;
        result.magnitude[i * n + j] += std::abs(product);
      }
    }
  }
  return result;
}

/// Each product has its own error in float32; the result is rounded once.
void check_close(double got, double sum, double magnitude, DType dtype) {
  CHECK(
      std::abs(got - sum) <= 3e-6 * magnitude + 1.01 * rounding_error(dtype) * std::abs(sum) + 1e-7,
      got, sum);
}

struct Case {
  DType dtype, out_dtype;
  std::int64_t m, n, k;
  BsrCase a, b;  // where sparse
  int layout = Dense::by_rows;
  float alpha = 1, beta = 0;
};

enum class Alias { separate, same };

void test_dense_result(Case c, bool a_sparse, bool b_sparse, Alias alias) {
  OwnedBsr a_bsr, b_bsr;
  Dense a_dense(c.dtype, c.m, c.k, c.layout), b_dense(c.dtype, c.k, c.n, (c.layout + 1) % 3);
  BsrGemmArgs args;
  args.backend = "cpu";
  args.alpha = c.alpha;
  args.beta = c.beta;
  args.a = a_dense.view;
  args.b = b_dense.view;
  std::vector<double> a = a_dense.values(), b = b_dense.values();
  c.a.dtype = c.b.dtype = c.dtype;
  c.a.rows = c.m;
  c.a.cols = c.b.rows = c.k;
  c.b.cols = c.n;
  if (a_sparse) {
    make_random_bsr(c.a, &a_bsr);
    args.a = a_bsr.view;
    a = bsr_to_dense(a_bsr);
  }
  if (b_sparse) {
    make_random_bsr(c.b, &b_bsr);
    args.b = b_bsr.view;
    b = bsr_to_dense(b_bsr);
  }
  const Expected expected = multiply(a, b, c.m, c.n, c.k);

  // beta == 0 must not read what out holds, nor c.
  Dense out(c.out_dtype, c.m, c.n, c.layout, alias == Alias::separate || c.beta == 0);
  Dense addend(c.out_dtype, c.m, c.n, (c.layout + 2) % 3, c.beta == 0);
  args.out = out.view;
  args.c = alias == Alias::same ? out.view : addend.view;
  const std::vector<double> before = alias == Alias::same ? out.values() : addend.values();
  bsr_gemm(args);
  const std::vector<double> got = out.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double old = c.beta == 0 ? 0.0 : c.beta * before[i];
    check_close(got[i], c.alpha * expected.sum[i] + old,
                std::abs(c.alpha) * expected.magnitude[i] + std::abs(old), c.out_dtype);
  }
}

void test_sampled(Case c, Alias alias) {
  Dense a(c.dtype, c.m, c.k, c.layout), b(c.dtype, c.k, c.n, (c.layout + 1) % 3);
  const Expected expected = multiply(a.values(), b.values(), c.m, c.n, c.k);
  OwnedBsr out, addend;
  c.a.dtype = c.out_dtype;
  c.a.rows = c.m;
  c.a.cols = c.n;
  make_random_bsr(c.a, &out);
  addend.view = out.view;
  addend.row_offsets = out.row_offsets;
  addend.col_indices = out.col_indices;
  addend.memory = Array(c.out_dtype, random_floats(out.view.values.num_elements()));
  addend.view.values.data = addend.memory.data();
  if (alias == Alias::separate || c.beta == 0) {
    out.memory = Array(c.out_dtype, out.view.values.num_elements(), kPoison);
    out.view.values.data = out.memory.data();
  }
  BsrGemmArgs args;
  args.backend = "cpu";
  args.alpha = c.alpha;
  args.beta = c.beta;
  args.a = a.view;
  args.b = b.view;
  args.out = out.view;
  if (c.beta != 0) args.c = alias == Alias::same ? out.view : addend.view;
  const std::vector<float> before =
      alias == Alias::same ? out.memory.floats() : addend.memory.floats();
  bsr_gemm(args);
  const std::vector<float> got = out.memory.floats();
  for_each_element(out, [&](std::int64_t row, std::int64_t col, std::size_t place) {
    const std::size_t i = static_cast<std::size_t>(row * c.n + col);
    const double old = c.beta == 0 ? 0.0 : c.beta * before[place];
    check_close(got[place], c.alpha * expected.sum[i] + old,
                std::abs(c.alpha) * expected.magnitude[i] + std::abs(old), c.out_dtype);
  });
}

void test_products() {
  // m, n, k, and the block they are multiples of.
  const std::int64_t shapes[][6] = {{128, 320, 96, 32, 32, 32},     {9, 5, 14, 1, 1, 1},
                                    {60, 70, 84, 20, 10, 7},        {64, 64, 64, 16, 16, 16},
                                    {256, 512, 256, 256, 256, 256}, {33, 48, 50, 33, 3, 25},
                                    {300, 60, 16, 1, 60, 16}};
  const DType types[][2] = {{DType::float32, DType::float32},
                            {DType::float16, DType::float16},
                            {DType::bfloat16, DType::bfloat16},
                            {DType::float16, DType::float32}};
  const float factors[][2] = {{1, 0}, {0.5f, -2}, {0, 3}, {-1, 0}};
  int round = 0;
  for (const auto& shape : shapes) {
    for (const auto& type : types) {
      const auto& factor = factors[round % 4];
      Case c{type[0], type[1], shape[0],  shape[1],  shape[2],
             {},      {},      round % 3, factor[0], factor[1]};
      const bool transposed = round % 2, shuffled = round / 2 % 2;
      const double density = round % 5 == 4 ? 0.0 : 0.4;
      c.a = {type[0], 0, 0, shape[3], shape[5], density, transposed, shuffled};
      c.b = {type[0], 0, 0, shape[5], shape[4], density, shuffled, transposed};
      const Alias alias = round % 3 == 0 ? Alias::same : Alias::separate;
      test_dense_result(c, true, false, alias);
      test_dense_result(c, false, true, alias);
      test_dense_result(c, true, true, alias);
      c.a.block_cols = shape[4];
      test_sampled(c, alias);
      ++round;
    }
  }
}

/// No columns between, no rows, no columns.
void test_empty_shapes() {
  for (const float beta : {0.0f, 2.0f}) {
    Case c{DType::float32, DType::float32, 8, 8, 0, {}, {}, Dense::by_rows, 1, beta};
    c.a.block_rows = c.a.block_cols = c.b.block_rows = c.b.block_cols = 4;
    for (const auto& extents : {std::vector<std::int64_t>{8, 8, 0}, {0, 8, 8}, {8, 0, 8}}) {
      c.m = extents[0];
      c.n = extents[1];
      c.k = extents[2];
      test_dense_result(c, true, false, Alias::separate);
      test_dense_result(c, false, true, Alias::separate);
      test_dense_result(c, true, true, Alias::separate);
      test_sampled(c, Alias::separate);
    }
  }
}

/// Structure out of range: wrong answers are allowed, accesses outside the arrays are not (the
/// sanitizers watch).
void test_garbage() {
  constexpr std::int32_t kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < 20; ++round) {
    OwnedBsr a, b;
    make_random_bsr({DType::float32, 64, 64, 8, 8, 0.5, false, true}, &a);
    make_random_bsr({DType::float32, 64, 64, 8, 8, 0.5, true, true}, &b);
    for (OwnedBsr* matrix : {&a, &b}) {
      for (auto* indices : {&matrix->col_indices, &matrix->value_indices}) {
        for (std::int32_t& index : *indices) {
          const std::int32_t garbage[] = {index, -1, kMax32, -kMax32 - 1, 8, 100};
          index = garbage[random_int(0, 5)];
        }
      }
      for (std::int64_t& offset : matrix->row_offsets) {
        const std::int64_t garbage[] = {offset, offset, -1, kMax64, -kMax64 - 1, 3};
        offset = garbage[random_int(0, 5)];
      }
    }
    Dense dense(DType::float32, 64, 64, Dense::by_rows),
        out(DType::float32, 64, 64, Dense::by_rows, true);
    const MatrixOperand operands[][3] = {
        {a.view, dense.view, out.view}, {dense.view, b.view, out.view}, {a.view, b.view, out.view}};
    for (const auto& [left, right, result] : operands) {
      BsrGemmArgs args;
      args.a = left;
      args.b = right;
      args.out = result;
      bsr_gemm(args);
      for (const double value : out.values()) CHECK(std::isfinite(value));
    }
    BsrGemmArgs sampled;
    sampled.a = sampled.b = dense.view;
    sampled.out = a.view;
    bsr_gemm(sampled);
  }
}

void test_deterministic() {
  OwnedBsr a, b;
  make_random_bsr({DType::float32, 512, 512, 16, 16, 0.3}, &a);
  make_random_bsr({DType::float32, 512, 512, 16, 16, 0.3}, &b);
  Dense dense(DType::float32, 512, 512, Dense::by_rows);
  const MatrixOperand operands[][2] = {
      {a.view, dense.view}, {dense.view, b.view}, {a.view, b.view}};
  for (const auto& [left, right] : operands) {
    std::vector<double> first;
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      Dense out(DType::float32, 512, 512, Dense::by_rows, true);
      BsrGemmArgs args;
      args.a = left;
      args.b = right;
      args.out = out.view;
      bsr_gemm(args);
      if (first.empty()) first = out.values();
      CHECK(first == out.values(), threads);
    }
  }
  set_num_threads(0);
}

}  // namespace

int main() {
  test_products();
  test_empty_shapes();
  test_garbage();
  test_deterministic();
  return failures() != 0;
}
