#pragma once

#include <cstddef>

#include "attention/problem.h"

namespace sparsek::attn {

// The weights of fused attention, which has them only in pieces: kernels of their own write them
// from q, k and the fused kernel's lse.

/// Of a fused backend whose kernel alone needs so many bytes.
std::size_t workspace_bytes_with_weights(const Problem& problem, std::size_t fused_bytes);

/// Runs the fused kernel, and if the weights are wanted, what writes them.
void run_with_weights(const Problem& problem, const AttentionArgs& args, std::size_t fused_bytes,
                      void (*run_fused)(const Problem&, const AttentionArgs&));

}  // namespace sparsek::attn
