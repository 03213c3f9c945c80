#pragma once

// Include this before any CuTe header. CuTe asks the driver for its version by a direct call, which
// would make the library need libcuda.so at load time; the runtime answers the same question on a
// machine without a driver too.

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace sparsek {

inline CUresult driver_version(int* version) {
  return cudaDriverGetVersion(version) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

}  // namespace sparsek

#define cuDriverGetVersion ::sparsek::driver_version
