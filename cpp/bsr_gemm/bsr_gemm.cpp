#include "sparsek/bsr_gemm.h"

#include <cstdint>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/problem.h"
#include "core/checks.h"
#include "core/device_guard.h"

namespace sparsek {
namespace {

const bsr::BsrGemmBackend& select(const bsr::Problem& problem, const BsrGemmArgs& args) {
  return select_backend("bsr_gemm", bsr::backends(), problem, args.backend);
}

void check_workspace(const void* workspace, std::size_t needed) {
  require_value(workspace != nullptr, "workspace: expected ", needed,
                " bytes of device memory, got null");
  require_value(reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0,
                "workspace: expected an address that is a multiple of 256, got ", workspace);
}

/// What is written while a and b are read lies elsewhere. (c is read where out is written.)
void check_out_apart(const BsrGemmArgs& args) {
  check_apart("out", args.out.values(), "a", args.a.values());
  check_apart("out", args.out.values(), "b", args.b.values());
}

}  // namespace

std::size_t bsr_plan_bytes(const BsrMatrixView& matrix, OperandSide side) {
  bsr::check_sparse("matrix", matrix);
  return bsr::sm90::bytes_of_plan(matrix, side);
}

void make_bsr_plan(const BsrMatrixView& matrix, OperandSide side, void* memory, void* stream,
                   PlanEffort effort) {
  if (bsr_plan_bytes(matrix, side) == 0) return;
  require_value(memory != nullptr, "memory: expected that of a plan, got null");
  const DeviceGuard guard(matrix.values.device);
  bsr::sm90::fill_plan(matrix, side, effort, memory, stream);
}

std::size_t bsr_gemm_workspace_bytes(const BsrGemmArgs& args) {
  bsr::Problem problem = bsr::make_problem(args);
  problem.workspace_offered = true;
  return select(problem, args).workspace_bytes(problem);
}

void bsr_gemm(const BsrGemmArgs& args) {
  const bsr::Problem problem = bsr::make_problem(args);
  check_out_apart(args);
  const bsr::BsrGemmBackend& backend = select(problem, args);
  const std::size_t needed = backend.workspace_bytes(problem);
  if (needed > 0) {
    require_value(args.workspace_bytes >= needed, "workspace_bytes: expected at least ", needed,
                  ", got ", args.workspace_bytes);
    check_workspace(args.workspace, needed);
  }
  run_backend(backend, problem, args);
}

void bsr_gemm(const BsrGemmArgs& args, const std::function<void*(std::size_t)>& allocate) {
  bsr::Problem problem = bsr::make_problem(args);
  problem.workspace_offered = true;
  check_out_apart(args);
  const bsr::BsrGemmBackend& backend = select(problem, args);
  const std::size_t needed = backend.workspace_bytes(problem);
  if (needed == 0) return run_backend(backend, problem, args);
  BsrGemmArgs with_workspace = args;
  with_workspace.workspace = allocate(needed);
  with_workspace.workspace_bytes = needed;
  check_workspace(with_workspace.workspace, needed);
  run_backend(backend, problem, with_workspace);
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
