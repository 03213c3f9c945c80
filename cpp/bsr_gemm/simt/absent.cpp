// Built in place of the backend when the library is built without CUDA.
#include "bsr_gemm/backends.h"

namespace sparsek::bsr::simt {
namespace {

Reason not_built() { return "not in this build (SPARSEK_CUDA=OFF)"; }
Reason declines(const Problem&) { return not_built(); }
std::size_t no_workspace(const Problem&) { return 0; }
void refuse(const Problem&, const BsrGemmArgs&) { fail(ErrorKind::unsupported, *not_built()); }

}  // namespace

BsrGemmBackend backend() { return {"simt", not_built, declines, no_workspace, refuse}; }

}  // namespace sparsek::bsr::simt
