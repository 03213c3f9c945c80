#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "core/cuda_check.h"

namespace sparsek {

struct LaunchOptions {
  /// May start before the kernel ahead of it in the stream has finished: it must call
  /// ptx::griddepcontrol_wait() before it touches memory.
  bool dependent = false;
  unsigned cluster = 1;      // CTAs
  bool cooperative = false;  // all CTAs run at a time, and may wait for each other
};

template <class... Params, class... Args>
void launch_kernel(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block,
                   std::size_t smem_bytes, cudaStream_t stream, const LaunchOptions& options,
                   Args&&... args) {
  cudaLaunchAttribute attributes[3];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = options.dependent;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {options.cluster, 1, 1};
  attributes[2].id = cudaLaunchAttributeCooperative;
  attributes[2].val.cooperative = options.cooperative;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = options.cooperative ? 3 : options.cluster > 1 ? 2 : 1;
  cuda_check(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...), name);
}

/// See LaunchOptions::dependent.
template <class... Params, class... Args>
void launch_dependent(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block,
                      std::size_t smem_bytes, cudaStream_t stream, Args&&... args) {
  launch_kernel(name, kernel, grid, block, smem_bytes, stream, {true}, std::forward<Args>(args)...);
}

}  // namespace sparsek
