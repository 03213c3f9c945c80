#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sparsek/types.h"

namespace sparsek {

/// What the selection of a backend may ask of a device; plain data, so that tests can make one up.
struct DeviceInfo {
  Device device;
  std::string name = "CPU";
  int compute_capability = 0;  // 90 for sm_90; 0 for the CPU
  int num_sms = 0;
  int max_smem_per_block_bytes = 0;
};

/// Throws Error (cuda) for a GPU that is not there. Cached.
const DeviceInfo& device_info(Device device);

/// The GPUs that the driver shows.
struct CudaDevices {
  std::vector<DeviceInfo> infos;
  std::string why_none;  // filled when there are none
};

/// Cached.
const CudaDevices& cuda_devices();

/// Why no backend for compute capability `exactly` (90: sm_90 and no other) can run on this
/// machine, if so.
std::optional<std::string> why_no_gpu(int exactly);

/// Why not even a GPU of compute capability `at_least` can be used on this machine, if so.
std::optional<std::string> why_no_gpu_from(int at_least);

}  // namespace sparsek
