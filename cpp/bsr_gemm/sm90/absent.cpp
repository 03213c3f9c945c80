// Built in place of the backend when the library is built without CUDA.
#include "bsr_gemm/backends.h"

namespace sparsek::bsr::sm90 {
namespace {

Reason not_built() { return "not in this build (SPARSEK_CUDA=OFF)"; }
Reason declines(const Problem&) { return not_built(); }
std::size_t no_workspace(const Problem&) { return 0; }
void refuse(const Problem&, const BsrGemmArgs&) { fail(ErrorKind::unsupported, *not_built()); }

}  // namespace

BsrGemmBackend backend() { return {"sm90", not_built, declines, no_workspace, refuse}; }

std::size_t bytes_of_plan(const BsrMatrixView&, OperandSide) { return 0; }
void fill_plan(const BsrMatrixView&, OperandSide, void*, void*) {}

}  // namespace sparsek::bsr::sm90
