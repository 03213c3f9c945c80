#include <cuda_runtime_api.h>

#include <mutex>

#include "core/cuda_check.h"
#include "core/device.h"
#include "core/device_guard.h"
#include "core/message.h"
#include "sparsek/system.h"

namespace sparsek {
namespace {

CudaDevices query_devices() {
  CudaDevices found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    int driver_version = 0;
    const bool driver = cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version > 0;
    found.why_none = driver ? cat("no usable GPU: ", cudaGetErrorString(status))
                            : std::string("no NVIDIA driver on this machine");
    return found;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    DeviceInfo info;
    info.device = {DeviceType::cuda, index};
    info.name = properties.name;
    info.compute_capability = properties.major * 10 + properties.minor;
    info.num_sms = properties.multiProcessorCount;
    info.max_smem_per_block_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
    found.infos.push_back(info);
  }
  if (found.infos.empty()) found.why_none = "the driver shows no GPU";
  return found;
}

}  // namespace

const CudaDevices& cuda_devices() {
  static const CudaDevices found = query_devices();
  return found;
}

const DeviceInfo& device_info(Device device) {
  static const DeviceInfo cpu;
  if (device.type == DeviceType::cpu) return cpu;
  const CudaDevices& found = cuda_devices();
  if (device.index < 0 || device.index >= static_cast<int>(found.infos.size())) {
    fail(ErrorKind::cuda, "arrays on ", device, ": ",
         found.infos.empty() ? found.why_none
                             : cat("the driver shows ", found.infos.size(), " GPU(s)"));
  }
  return found.infos[device.index];
}

int cuda_build_version() { return CUDART_VERSION; }

void synchronize(Device device, void* stream) {
  const DeviceGuard guard(device);
  cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "synchronize");
}

}  // namespace sparsek
