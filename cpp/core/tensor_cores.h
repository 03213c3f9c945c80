#pragma once

#include "core/backend_table.h"
#include "core/device.h"

namespace sparsek {

/// Why kernels for float16 and bfloat16, of `expected` chips, do not take arrays of that device and
/// dtype, if so.
inline Reason why_not_halves_on(const DeviceInfo& info, DType dtype, bool is_such_chip,
                                const char* expected) {
  if (info.device.type != DeviceType::cuda) {
    return cat("arrays are on ", info.device, ", expected a CUDA device");
  }
  if (!is_such_chip) {
    return cat(info.device, " is ", info.name, " (sm_", info.compute_capability, "), expected ",
               expected);
  }
  if (dtype != DType::float16 && dtype != DType::bfloat16) {
    return cat("dtype is ", dtype, ", expected float16 or bfloat16");
  }
  return std::nullopt;
}

/// The same of the kernels of TMA and WGMMA.
inline Reason why_not_sm90(const DeviceInfo& info, DType dtype) {
  return why_not_halves_on(info, dtype, info.compute_capability == 90, "sm_90");
}

/// The same of the kernels of warp-level MMA.
inline Reason why_not_tensor_cores(const DeviceInfo& info, DType dtype) {
  return why_not_halves_on(info, dtype, info.compute_capability >= 80, "sm_80 or later");
}

}  // namespace sparsek
