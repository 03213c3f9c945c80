#pragma once

#include <cutlass/cutlass.h>

#include "core/cuda_check.h"
#include "primitives/launch.cuh"

namespace sparsek {

/// What cutlass::device_kernel does, in the device's pass alone: in the host's a body is
/// instantiated only to be thrown away, which takes half of the compile time.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
    gemm_kernel(const __grid_constant__ typename Kernel::Params params) {
#ifdef __CUDA_ARCH__
  extern __shared__ char memory[];
  Kernel{}(params, memory);
#endif
}

/// Enqueues a CUTLASS 3 kernel, which waits for the one ahead of it by itself.
template <class Kernel>
void launch_gemm(const char* name, const typename Kernel::Params& params, cudaStream_t stream) {
  using Cluster = typename Kernel::DispatchPolicy::ClusterShape;
  static_assert(cute::size<1>(Cluster{}) == 1 && cute::size<2>(Cluster{}) == 1);
  auto* kernel = gemm_kernel<Kernel>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Kernel::SharedStorageSize),
             name);
  launch_kernel(name, kernel, Kernel::get_grid_shape(params), Kernel::get_block_shape(),
                Kernel::SharedStorageSize, stream,
                {true, static_cast<unsigned>(cute::size<0>(Cluster{}))}, params);
}

}  // namespace sparsek
