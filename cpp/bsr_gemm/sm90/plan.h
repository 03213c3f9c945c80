#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/params.h"
#include "sparsek/bsr_gemm.h"

namespace sparsek::bsr::sm90 {

/// Which rows make a group.
///   neighbours  those beside each other
///   similar     those that share many k blocks, for products with one sparse operand (similar.cuh)
enum class Grouping : std::uint8_t { neighbours, similar };

std::size_t plan_bytes(const BsrMatrixView& matrix, OperandSide side);

/// Enqueues what fills the memory of a plan. Whatever the matrix's indices are, what the plan names
/// lies inside it: an index out of range is left out.
void make_plan(const BsrMatrixView& matrix, OperandSide side, PlanEffort effort, void* memory,
               cudaStream_t stream);

/// Where in its memory the parts of a plan lie.
Lists lists_of(const BsrMatrixView& matrix, OperandSide side, Grouping grouping,
               const void* memory);

/// What the CTAs of a product with few columns do; null where few_takes_rows says no.
FewDeal deal_of(const BsrMatrixView& matrix, OperandSide side, const void* memory);

}  // namespace sparsek::bsr::sm90
