// Built in place of the backend when the library is built without CUDA.
#include "bsr_gemm/backends.h"
#include "core/absent_backend.h"

namespace sparsek::bsr::sm90_dense {

BsrGemmBackend backend() { return absent_backend<Problem, BsrGemmArgs>("sm90_dense"); }

}  // namespace sparsek::bsr::sm90_dense
