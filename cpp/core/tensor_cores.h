#pragma once

#include "core/backend_table.h"
#include "core/device.h"

namespace sparsek {

/// Why the kernels of warp-level MMA do not take arrays of that device and dtype, if so.
inline Reason why_not_tensor_cores(const DeviceInfo& info, DType dtype) {
  if (info.device.type != DeviceType::cuda) {
    return cat("arrays are on ", info.device, ", expected a CUDA device");
  }
  if (info.compute_capability < 80) {
    return cat(info.device, " is ", info.name, " (sm_", info.compute_capability,
               "), expected sm_80 or later");
  }
  if (dtype != DType::float16 && dtype != DType::bfloat16) {
    return cat("dtype is ", dtype, ", expected float16 or bfloat16");
  }
  return std::nullopt;
}

}  // namespace sparsek
