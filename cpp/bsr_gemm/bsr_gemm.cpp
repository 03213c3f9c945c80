#include "sparsek/bsr_gemm.h"

#include "bsr_gemm/backends.h"
#include "bsr_gemm/problem.h"

namespace sparsek {
namespace {

const bsr::BsrGemmBackend& select(const bsr::Problem& problem, const BsrGemmArgs& args) {
  return select_backend("bsr_gemm", bsr::backends(), problem, args.backend);
}

}  // namespace

void bsr_gemm(const BsrGemmArgs& args) {
  const bsr::Problem problem = bsr::make_problem(args);
  select(problem, args).run(problem, args);
}

std::string bsr_gemm_backend(const BsrGemmArgs& args) {
  return select(bsr::make_problem(args), args).name;
}

std::vector<BackendStatus> bsr_gemm_backends() { return backend_statuses(bsr::backends()); }

}  // namespace sparsek
