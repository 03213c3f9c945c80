#include "attention/backends.h"

namespace sparsek::attention {

const std::vector<AttentionBackend>& backends() {
  static const std::vector<AttentionBackend> table = {
      sm90_unfused::backend(),
      cpu::backend(),
  };
  return table;
}

}  // namespace sparsek::attention
