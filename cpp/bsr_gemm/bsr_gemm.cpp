#include "sparsek/bsr_gemm.h"

#include "bsr_gemm/backends.h"
#include "bsr_gemm/problem.h"

namespace sparsek {
namespace {

const bsr::BsrGemmBackend& select(const bsr::Problem& problem, const BsrGemmArgs& args) {
  return select_backend("bsr_gemm", bsr::backends(), problem, args.backend);
}

}  // namespace

std::size_t bsr_plan_bytes(const BsrMatrixView& matrix, OperandSide side) {
  bsr::check_sparse("matrix", matrix);
  return bsr::sm90::bytes_of_plan(matrix, side);
}

void make_bsr_plan(const BsrMatrixView& matrix, OperandSide side, void* memory, void* stream) {
  if (bsr_plan_bytes(matrix, side) == 0) return;
  require_value(memory != nullptr, "memory: expected that of a plan, got null");
  bsr::sm90::fill_plan(matrix, side, memory, stream);
}

void bsr_gemm(const BsrGemmArgs& args) {
  const bsr::Problem problem = bsr::make_problem(args);
  select(problem, args).run(problem, args);
}

std::string bsr_gemm_backend(const BsrGemmArgs& args) {
  return select(bsr::make_problem(args), args).name;
}

std::vector<BackendStatus> bsr_gemm_backends() { return backend_statuses(bsr::backends()); }

std::vector<std::string> bsr_gemm_backends_by_gpu() {
  std::vector<std::string> names;
  for (const DeviceInfo& info : cuda_devices().infos) {
    bsr::Problem problem;
    problem.m = problem.n = problem.k = 1024;
    problem.a_block = {64, 64};
    problem.a_access = {2, 16};
    problem.b_access = problem.out_access = {1, 16};
    problem.a_planned = true;
    problem.device = info;
    names.push_back(first_that_takes(bsr::backends(), problem));
  }
  return names;
}

}  // namespace sparsek
