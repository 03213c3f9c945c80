#include <string>
#include <utility>

#include "xla_call.h"

namespace sparsek::python::xla {
namespace {

BsrMatrixView next_matrix(Call& call) {
  BsrMatrixView matrix;
  matrix.rows = call.integer("rows");
  matrix.cols = call.integer("cols");
  matrix.values = call.next_argument("values");
  if (call.flag("transposed")) {  // the values are those of the transpose
    std::swap(matrix.values.shape[1], matrix.values.shape[2]);
    std::swap(matrix.values.stride[1], matrix.values.stride[2]);
  }
  matrix.row_offsets = call.next_indices<std::int64_t>("row_offsets");
  matrix.col_indices = call.next_indices<std::int32_t>("col_indices");
  if (call.flag("reordered")) {
    matrix.value_indices = call.next_indices<std::int32_t>("value_indices");
  }
  return matrix;
}

void bsr_gemm_call(Call& call) {
  const bool right = call.flag("sparse_right");
  const BsrMatrixView matrix = next_matrix(call);
  const TensorView dense = call.next_argument(right ? "a" : "b");
  BsrGemmArgs args;
  args.a = right ? MatrixOperand(dense) : MatrixOperand(matrix);
  args.b = right ? MatrixOperand(matrix) : MatrixOperand(dense);
  args.beta = call.number("beta");
  if (args.beta != 0) args.c = call.next_argument("c");
  args.out = call.next_result("out");
  args.alpha = call.number("alpha");
  const std::string backend = call.text("backend");
  args.backend = backend;
  args.stream = call.stream();
  // XLA keeps nothing of a call for the next one, so that the plan is made each time: it takes no
  // copy to the host and no wait.
  const bool planned = backend.empty() || backend == "sm90";
  if (planned && matrix.values.dtype != DType::float32) {
    const OperandSide side = right ? OperandSide::right : OperandSide::left;
    const std::size_t bytes = bsr_plan_bytes(matrix, side);
    if (bytes > 0) {
      void* const plan = call.allocate(bytes);
      make_bsr_plan(matrix, side, plan, call.stream(), PlanEffort::low);
      (right ? args.b_plan : args.a_plan) = plan;
    }
  }
  bsr_gemm(args, [&](std::size_t bytes) { return call.allocate(bytes); });
}

}  // namespace

Error* bsr_gemm_cpu(CallFrame* frame) { return run(frame, Platform::cpu, bsr_gemm_call); }
Error* bsr_gemm_cuda(CallFrame* frame) { return run(frame, Platform::cuda, bsr_gemm_call); }

}  // namespace sparsek::python::xla
