// Built in place of the backend when the library is built without CUDA.
#include "bsr_gemm/backends.h"
#include "core/absent_backend.h"

namespace sparsek::bsr::wmma {

BsrGemmBackend backend() { return absent_backend<Problem, BsrGemmArgs>("wmma"); }

}  // namespace sparsek::bsr::wmma
