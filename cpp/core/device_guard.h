#pragma once

#include "sparsek/types.h"

namespace sparsek {

/// Makes a GPU this thread's current one while it lives; nothing for the CPU. It then has a context
/// too, which the driver asks for, and a thread whose first CUDA call is ours has none.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace sparsek
