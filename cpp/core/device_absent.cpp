// Built in place of device_cuda.cpp when the library is built without CUDA.
#include "core/device.h"
#include "core/device_guard.h"
#include "core/message.h"
#include "sparsek/system.h"

namespace sparsek {
namespace {
constexpr const char* kNotBuilt = "this build of sparsek has no CUDA backends (SPARSEK_CUDA=OFF)";
}

const DeviceInfo& device_info(Device device) {
  static const DeviceInfo cpu;
  if (device.type == DeviceType::cpu) return cpu;
  fail(ErrorKind::unsupported, "arrays on ", to_string(device), ": ", kNotBuilt);
}

const CudaDevices& cuda_devices() {
  static const CudaDevices none{{}, kNotBuilt};
  return none;
}

int cuda_build_version() { return 0; }

void synchronize(Device, void*) { fail(ErrorKind::unsupported, "synchronize: ", kNotBuilt); }

DeviceGuard::DeviceGuard(Device) {}
DeviceGuard::~DeviceGuard() = default;

}  // namespace sparsek
