#pragma once

#include <vector>

#include "bsr_gemm/problem.h"
#include "core/backend_table.h"

namespace sparsek::bsr {

using BsrGemmBackend = Backend<Problem, BsrGemmArgs>;

namespace simt {
BsrGemmBackend backend();
}
namespace cpu {
BsrGemmBackend backend();
}

/// In order of preference.
const std::vector<BsrGemmBackend>& backends();

}  // namespace sparsek::bsr
