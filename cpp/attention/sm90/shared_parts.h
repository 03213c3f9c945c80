#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "attention/output.h"
#include "attention/problem.h"
#include "attention/sm90/rows.h"
#include "attention/sm90/schedule.h"

namespace sparsek::attn::sm90 {

/// Outputs and lses of the parts of shared tiles: of part i as those of batch i, with one head.
struct SharedParts {
  Output out;
  Lse lse;
  std::int32_t rows = 0;  // of a part
};

std::size_t bytes_of_shared_parts(const Problem& problem, const Shares& shares, const Rows& rows);

/// Where they lie in the workspace.
SharedParts shared_parts(const Problem& problem, const Shares& shares, const Rows& rows,
                         void* workspace);

/// Enqueues the sum of the parts of each shared tile, unless `schedule` says on the GPU that tiles
/// were taken whole: the output in the problem's dtype, and lse if it has a place; both of the
/// queries and heads that the rows are.
void add_shared_parts(const Problem& problem, const Schedule& schedule, const Rows& rows,
                      const SharedParts& parts, const Output& out, const Lse& lse,
                      cudaStream_t stream);

}  // namespace sparsek::attn::sm90
