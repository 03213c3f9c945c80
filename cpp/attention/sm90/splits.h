#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "attention/output.h"
#include "attention/problem.h"
#include "attention/sm90/rows.h"

namespace sparsek::attn::sm90 {

// Flash-decoding (Dao et al., Flash-Decoding for long-context inference, 2023): CTAs that share the
// keys of a q tile write an output and an lse each, as if there were 2^log2_splits batches for one,
// and a second kernel weighs them.

constexpr int kMostLog2Splits = 5;

struct Parts {
  Output out;
  Lse lse;
  int log2_splits = 0;
};

std::size_t bytes_of_parts(const Problem& problem, int log2_splits);

/// Where they lie in the workspace.
Parts parts_of(const Problem& problem, int log2_splits, void* workspace);

/// Enqueues the sum: the output in the problem's dtype, and lse if it has a place; both of the
/// queries and heads that the rows are.
void add_parts(const Problem& problem, const Rows& rows, const Parts& parts, const Output& out,
               const Lse& lse, cudaStream_t stream);

}  // namespace sparsek::attn::sm90
