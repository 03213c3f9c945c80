#pragma once

#include <string>
#include <vector>

#include "sparsek/types.h"

namespace sparsek {

struct GpuInfo {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90 for sm_90
};

/// The GPUs that the driver shows; none when the library was built without CUDA.
std::vector<GpuInfo> list_gpus();

/// CUDA toolkit that the library was built with (13000 for 13.0), 0 when built without CUDA.
int cuda_build_version();

/// Waits for the work on a cudaStream_t of a GPU; null is its default stream. Throws Error (cuda).
void synchronize(Device device, void* stream);

}  // namespace sparsek
