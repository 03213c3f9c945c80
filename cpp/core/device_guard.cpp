#include "core/device_guard.h"

#include <map>
#include <mutex>

#include "core/driver.h"

namespace sparsek {
namespace {

/// The context that the runtime uses too. Held until the process ends.
CUcontext primary_context(int index) {
  static const auto get = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet");
  static const auto retain =
      driver_function<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  static std::mutex mutex;
  static std::map<int, CUcontext> held;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = held.find(index);
  if (found != held.end()) return found->second;
  CUdevice device;
  CUcontext context;
  driver_check(get(&device, index), "cuDeviceGet");
  driver_check(retain(&context, device), "cuDevicePrimaryCtxRetain");
  return held[index] = context;
}

}  // namespace

// Pushed and popped, not cudaSetDevice and back: that would make a context on the GPU that was
// current before, where nobody may want one.
DeviceGuard::DeviceGuard(Device device) {
  if (device.type == DeviceType::cpu) return;
  static const auto current = driver_function<decltype(&cuCtxGetDevice)>("cuCtxGetDevice");
  static const auto push = driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
  CUdevice now;
  const CUresult result = current(&now);
  if (result == CUDA_SUCCESS && now == device.index) return;
  driver_check(push(primary_context(device.index)), "cuCtxPushCurrent");
  pushed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (!pushed_) return;
  static const auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
  CUcontext popped;
  pop(&popped);
}

}  // namespace sparsek
