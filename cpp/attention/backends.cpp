#include "attention/backends.h"

namespace sparsek::attn {

const std::vector<AttentionBackend>& backends() {
  static const std::vector<AttentionBackend> table = {
      sm90_unfused::backend(),
      sm90::backend(),  // after it until all its tests have run on a GPU
      cpu::backend(),
  };
  return table;
}

}  // namespace sparsek::attn
