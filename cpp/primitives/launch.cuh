#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "core/cuda_check.h"

namespace sparsek {

/// Launches a kernel that may start before the one ahead of it in the stream has finished: it must
/// call ptx::griddepcontrol_wait() before it touches memory.
template <class... Params, class... Args>
void launch_dependent(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block,
                      std::size_t smem_bytes, cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cuda_check(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...), name);
}

}  // namespace sparsek
