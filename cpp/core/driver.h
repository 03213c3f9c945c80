#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "core/cuda_check.h"

namespace sparsek {

/// A function of the driver as CUDA 12.0 has it. Asked of the runtime, so that the library loads
/// where there is no driver.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cuda_check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  require(found == cudaDriverEntryPointSuccess && function != nullptr, ErrorKind::cuda, name,
          " is not in this driver, expected one for CUDA 12.0 or later");
  return reinterpret_cast<Function>(function);
}

/// `name`: of the function, behind what the message is about.
template <class... Parts>
void driver_check(CUresult result, const Parts&... name) {
  require(result == CUDA_SUCCESS, ErrorKind::cuda, name..., " returned ", static_cast<int>(result));
}

}  // namespace sparsek
