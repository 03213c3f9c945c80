#include "bsr_gemm/backends.h"

namespace sparsek::bsr {

const std::vector<BsrGemmBackend>& backends() {
  static const std::vector<BsrGemmBackend> table = {
      sm90_dense::backend(), sm90::backend(), wmma::backend(), simt::backend(), cpu::backend(),
  };
  return table;
}

}  // namespace sparsek::bsr
