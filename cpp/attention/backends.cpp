#include "attention/backends.h"

namespace sparsek::attn {

const std::vector<AttentionBackend>& backends() {
  static const std::vector<AttentionBackend> table = {
      sm90::backend(),
      wmma::backend(),
      cpu::backend(),
  };
  return table;
}

}  // namespace sparsek::attn
