#pragma once

#include "core/backend_table.h"

namespace sparsek {

inline Reason not_built() { return "not in this build (SPARSEK_CUDA=OFF)"; }

/// The row of a backend that is not in this build: it declines everything and says why.
template <class Problem, class Args>
Backend<Problem, Args> absent_backend(const char* name) {
  return {name, not_built, [](const Problem&) { return not_built(); },
          [](const Problem&) -> std::size_t { return 0; },
          [](const Problem&, const Args&) { fail(ErrorKind::unsupported, *not_built()); }};
}

}  // namespace sparsek
