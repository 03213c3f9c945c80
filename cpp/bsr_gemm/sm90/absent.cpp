// Built in place of the backend when the library is built without CUDA.
#include "bsr_gemm/backends.h"
#include "core/absent_backend.h"

namespace sparsek::bsr::sm90 {

BsrGemmBackend backend() { return absent_backend<Problem, BsrGemmArgs>("sm90"); }

std::size_t bytes_of_plan(const BsrMatrixView&, OperandSide) { return 0; }
void fill_plan(const BsrMatrixView&, OperandSide, PlanEffort, void*, void*) {}

}  // namespace sparsek::bsr::sm90
