#include "bsr_gemm/backends.h"
#include "bsr_gemm/cpu/products.h"
#include "core/message.h"

namespace sparsek::bsr::cpu {
namespace {

Reason always() { return std::nullopt; }

Reason supports(const Problem& problem) {
  if (problem.device.device.type == DeviceType::cpu) return std::nullopt;
  return cat("arrays are on ", to_string(problem.device.device));
}

std::size_t no_workspace(const Problem&) { return 0; }

void run(const Problem& problem, const BsrGemmArgs& args) {
  switch (problem.product) {
    case Product::sparse_dense: return multiply_left_sparse(problem, args);
    case Product::dense_sparse:
    case Product::sparse_sparse: return multiply_right_sparse(problem, args);
    case Product::sampled: return multiply_sampled(problem, args);
    case Product::dense: return multiply_dense(problem, args);
  }
}

}  // namespace

BsrGemmBackend backend() { return {"cpu", always, supports, no_workspace, run}; }

}  // namespace sparsek::bsr::cpu
