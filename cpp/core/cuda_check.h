#pragma once

#include <cuda_runtime_api.h>

#include "core/message.h"
#include "sparsek/types.h"

namespace sparsek {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a sticky-less error would otherwise surface in the caller's next check
  fail(ErrorKind::cuda, what, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

/// Makes a device current while it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    cuda_check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device.index) {
      cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
      changed_ = true;
    }
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace sparsek
