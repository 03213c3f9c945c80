#pragma once

#include <vector>

#include "bsr_gemm/problem.h"
#include "core/backend_table.h"

namespace sparsek::bsr {

using BsrGemmBackend = Backend<Problem, BsrGemmArgs>;

namespace sm90 {
BsrGemmBackend backend();
/// Of bsr_plan_bytes and make_bsr_plan.
std::size_t bytes_of_plan(const BsrMatrixView& matrix, OperandSide side);
void fill_plan(const BsrMatrixView& matrix, OperandSide side, PlanEffort effort, void* memory,
               void* stream);
}  // namespace sm90
namespace sm90_dense {
BsrGemmBackend backend();
}
namespace wmma {
BsrGemmBackend backend();
}
namespace simt {
BsrGemmBackend backend();
}
namespace cpu {
BsrGemmBackend backend();
}

/// In order of preference.
const std::vector<BsrGemmBackend>& backends();

}  // namespace sparsek::bsr
