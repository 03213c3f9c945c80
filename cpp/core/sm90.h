#pragma once

#include "core/backend_table.h"
#include "core/device.h"

namespace sparsek {

/// Why the sm_90 kernels do not take arrays of that device and dtype, if so.
inline Reason why_not_sm90(const DeviceInfo& info, DType dtype) {
  if (info.device.type != DeviceType::cuda) {
    return cat("arrays are on ", info.device, ", expected a CUDA device");
  }
  if (info.compute_capability != 90) {
    return cat(info.device, " is ", info.name, " (sm_", info.compute_capability,
               "), expected sm_90");
  }
  if (dtype != DType::float16 && dtype != DType::bfloat16) {
    return cat("dtype is ", dtype, ", expected float16 or bfloat16");
  }
  return std::nullopt;
}

}  // namespace sparsek
