#pragma once

#include "bsr_gemm/problem.h"

// One function for each place of the sparse matrix; each overwrites all of out.
namespace sparsek::bsr::cpu {

/// BSR x dense: a task is a block row of out, and some of its columns.
void multiply_left_sparse(const Problem& problem, const BsrGemmArgs& args);

/// Dense x BSR and BSR x BSR, row by row (Gustavson): a task is a panel of rows of out, and some of
/// its columns.
void multiply_right_sparse(const Problem& problem, const BsrGemmArgs& args);

/// Dense x dense at the pattern of out: a task is a block row of out.
void multiply_sampled(const Problem& problem, const BsrGemmArgs& args);

/// Dense x dense: a task is a panel of rows of out, and some of its columns.
void multiply_dense(const Problem& problem, const BsrGemmArgs& args);

}  // namespace sparsek::bsr::cpu
