#pragma once

#include <cuda_runtime_api.h>

#include "core/message.h"

namespace sparsek {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a sticky-less error would otherwise surface in the caller's next check
  fail(ErrorKind::cuda, what, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

}  // namespace sparsek
