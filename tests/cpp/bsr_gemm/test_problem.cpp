#include <limits>
#include <vector>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/problem.h"
#include "check.h"
#include "sparsek/bsr_gemm.h"

using namespace sparsek;
using bsr::Problem;

namespace {

/// Arguments of a (64, 32) x (32, 48) that are right; nothing is ever read through them.
struct Sound {
  std::vector<float> memory = std::vector<float>(64);
  std::vector<std::int64_t> offsets = std::vector<std::int64_t>(65);
  std::vector<std::int32_t> columns = std::vector<std::int32_t>(64);
  BsrGemmArgs args;

  Sound() {
    args.a = sparse(64, 32, 16, 8);
    args.b = dense(32, 48);
    args.out = dense(64, 48);
  }
  TensorView dense(std::int64_t rows, std::int64_t cols) {
    return contiguous_view(memory.data(), DType::float32, {}, {rows, cols});
  }
  BsrMatrixView sparse(std::int64_t rows, std::int64_t cols, std::int64_t block_rows,
                       std::int64_t block_cols) {
    BsrMatrixView matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.values = contiguous_view(memory.data(), DType::float32, {}, {3, block_rows, block_cols});
    matrix.row_offsets = offsets.data();
    matrix.col_indices = columns.data();
    return matrix;
  }
};

template <class Change>
void check_error(int line, ErrorKind kind, const std::string& expected, Change change) {
  Sound sound;
  change(sound);
  std::string got = "no error";
  try {
    bsr::make_problem(sound.args);
  } catch (const Error& error) {
    check(error.kind() == kind, __FILE__, line, "the kind of", error.what());
    got = error.what();
  }
  check(got.find(expected) != std::string::npos, __FILE__, line, "the message", got, "expected",
        expected);
}

void test_products() {
  Sound s;
  CHECK(bsr::make_problem(s.args).product == bsr::Product::sparse_dense);
  CHECK_EQ(to_string(bsr::make_problem(s.args)),
           "BSR 16x8 x dense -> dense m=64 n=48 k=32 dtype=float32 out_dtype=float32 device=cpu");
  s.args.b = s.sparse(32, 48, 8, 12);
  CHECK(bsr::make_problem(s.args).product == bsr::Product::sparse_sparse);
  s.args.a = s.dense(64, 32);
  CHECK(bsr::make_problem(s.args).product == bsr::Product::dense_sparse);
  s.args.b = s.dense(32, 48);
  s.args.out = s.sparse(64, 48, 16, 16);
  CHECK(bsr::make_problem(s.args).product == bsr::Product::sampled);
  s.args.out = s.dense(64, 48);
  CHECK(bsr::make_problem(s.args).product == bsr::Product::dense);
}

void test_errors() {
  const ErrorKind value = ErrorKind::invalid_value, type = ErrorKind::invalid_type,
                  no = ErrorKind::unsupported;
  check_error(__LINE__, value, "a: expected a matrix, got none", [](Sound& s) { s.args.a = {}; });
  check_error(__LINE__, no, "of two dense matrices, got a block-sparse",
              [](Sound& s) { s.args.out = s.sparse(64, 48, 16, 16); });
  check_error(__LINE__, value, "b: expected 32 rows (the columns of a), got shape (40, 48)",
              [](Sound& s) { s.args.b = s.dense(40, 48); });
  check_error(__LINE__, value, "out: expected shape (64, 48), got (64, 40)",
              [](Sound& s) { s.args.out = s.dense(64, 40); });
  check_error(__LINE__, value, "out: expected memory for each element, got stride 0 on axis 0",
              [](Sound& s) { s.args.out.dense.stride[0] = 0; });
  check_error(__LINE__, value, "a: expected a block shape from 1x1 to 256x256, got 257x8",
              [](Sound& s) { s.args.a = s.sparse(257, 32, 257, 8); });
  check_error(__LINE__, value, "a: expected rows that are a multiple of the block's 16, got 60",
              [](Sound& s) { s.args.a = s.sparse(60, 32, 16, 8); });
  check_error(__LINE__, value, "b: expected blocks of 8 rows (the columns of a's blocks), got 4x12",
              [](Sound& s) { s.args.b = s.sparse(32, 48, 4, 12); });
  check_error(__LINE__, value, "a: expected row_offsets, got null",
              [](Sound& s) { s.args.a.sparse->row_offsets = nullptr; });
  check_error(__LINE__, type, "b: expected the dtype of a (float32), got bfloat16",
              [](Sound& s) { s.args.b.dense.dtype = DType::bfloat16; });
  check_error(__LINE__, type, "out: expected dtype float32 or that of a (float32), got float16",
              [](Sound& s) { s.args.out.dense.dtype = DType::float16; });
  check_error(__LINE__, value, "out: expected the device of a (cpu), got cuda:0",
              [](Sound& s) { s.args.out.dense.device = {DeviceType::cuda, 0}; });
  check_error(__LINE__, value, "alpha: expected a finite number, got inf",
              [](Sound& s) { s.args.alpha = std::numeric_limits<float>::infinity(); });
  check_error(__LINE__, value, "c: expected a matrix, got none", [](Sound& s) { s.args.beta = 1; });
  check_error(__LINE__, value, "c: expected shape (64, 48), got (48, 64)", [](Sound& s) {
    s.args.beta = 1;
    s.args.c = s.dense(48, 64);
  });
}

void test_selection() {
  Sound sound;
  CHECK_EQ(bsr_gemm_backend(sound.args), "cpu");
  sound.args.backend = "fast";
  CHECK_THROWS(ErrorKind::invalid_value, "cpu, got \"fast\"", bsr_gemm_backend(sound.args));

  Problem problem = bsr::make_problem(Sound().args);
  problem.device.device = {DeviceType::cuda, 2};
  problem.device.name = "made up";
  problem.device.compute_capability = 50;
  CHECK_THROWS(ErrorKind::unsupported, "\n  cpu: arrays are on cuda:2",
               select_backend("bsr_gemm", bsr::backends(), problem, ""));
  for (const auto& backend : bsr::backends()) {
    const Reason reason = backend.supports(problem);
    CHECK(reason.has_value() && !reason->empty(), backend.name);
  }
  bool has_cpu = false;
  for (const BackendStatus& status : bsr_gemm_backends()) {
    CHECK(status.available == status.reason.empty(), status.name, status.reason);
    has_cpu = has_cpu || (status.name == "cpu" && status.available);
  }
  CHECK(has_cpu);
}

void test_access() {
  Sound s;
  const auto out_access = [&](std::int64_t row_stride, std::int64_t col_stride,
                              std::size_t offset) {
    s.args.out.dense.stride = {row_stride, col_stride};
    s.args.out.dense.data = reinterpret_cast<void*>(std::size_t{4096} + offset);
    return bsr::make_problem(s.args).out_access;
  };
  const auto is = [](const bsr::Access& access, int axis, int alignment) {
    return access.axis == axis && access.alignment == alignment;
  };
  CHECK(is(out_access(48, 1, 0), 1, 16));
  CHECK(is(out_access(1, 64, 0), 0, 16));
  CHECK(is(out_access(50, 1, 0), 1, 8));
  CHECK(is(out_access(48, 1, 4), 1, 4));
  CHECK(is(out_access(-48, 1, 0), 1, 0));
  CHECK(out_access(96, 2, 0).axis == -1);
  CHECK(out_access(48, 1, 0).bytes == 64 * 48 * 4);
  CHECK(out_access(50, 1, 0).bytes == (63 * 50 + 48) * 4);
  // Both axes look contiguous when one has a single element: the better one is taken.
  s.args.b = s.dense(32, 1);
  s.args.out = s.dense(64, 1);
  CHECK(is(bsr::make_problem(s.args).out_access, 0, 16));
  const Problem problem = bsr::make_problem(s.args);
  CHECK(!problem.a_planned && !problem.b_planned);
  CHECK(is(problem.a_access, 2, 16));  // of the values
  CHECK_EQ(bsr_plan_bytes(*s.args.a.sparse, OperandSide::left), 0u);
}

/// What the Hopper kernels say of problems that they leave to others, asked without a GPU.
void test_sm90_declines() {
  Problem problem = bsr::make_problem(Sound().args);
  problem.device.device = {DeviceType::cuda, 0};
  problem.device.compute_capability = 90;
  problem.dtype = DType::float16;
  problem.a_block = {16, 32};
  problem.a_planned = true;
  const auto reason = [](const Problem& p) {
    for (const auto& backend : bsr::backends()) {
      if (std::string(backend.name) == "sm90") return backend.supports(p).value_or("");
    }
    return std::string("no such backend");
  };
  if (reason(problem) == "not in this build (SPARSEK_CUDA=OFF)") return;
  CHECK_EQ(reason(problem), "");
  const auto declined = [&](const std::string& expected, auto change) {
    Problem p = problem;
    change(p);
    CHECK(reason(p).find(expected) != std::string::npos, reason(p), expected);
  };
  declined("sm_80", [](Problem& p) { p.device.compute_capability = 80; });
  declined("dtype is float32", [](Problem& p) { p.dtype = DType::float32; });
  declined("a has blocks of 16x48", [](Problem& p) { p.a_block.cols = 48; });
  declined("a has no plan", [](Problem& p) { p.a_planned = false; });
  declined("b has no contiguous axis", [](Problem& p) { p.b_access.axis = -1; });
  declined("b has an address or strides that are multiples of 4 bytes",
           [](Problem& p) { p.b_access.alignment = 4; });
  declined("out has no contiguous axis", [](Problem& p) { p.out_access.axis = -1; });
  declined("k is 0", [](Problem& p) { p.k = 0; });
  declined("the largest of m, n, k", [](Problem& p) { p.m = std::int64_t{1} << 31; });
}

}  // namespace

int main() {
  test_products();
  test_errors();
  test_selection();
  test_access();
  test_sm90_declines();
  return failures() != 0;
}
