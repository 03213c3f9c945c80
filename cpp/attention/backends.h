#pragma once

#include <vector>

#include "attention/problem.h"
#include "core/backend_table.h"

namespace sparsek::attn {

using AttentionBackend = Backend<Problem, AttentionArgs>;

namespace sm90 {
AttentionBackend backend();
}
namespace wmma {
AttentionBackend backend();
}
namespace cpu {
AttentionBackend backend();
}

/// In order of preference.
const std::vector<AttentionBackend>& backends();

}  // namespace sparsek::attn
