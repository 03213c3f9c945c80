#include "core/device.h"
#include "core/message.h"
#include "sparsek/system.h"

namespace sparsek {
namespace {

std::optional<std::string> why_none_matches(bool (*matches)(int, int), int wanted,
                                            const char* or_else) {
  const CudaDevices& devices = cuda_devices();
  for (const DeviceInfo& info : devices.infos) {
    if (matches(info.compute_capability, wanted)) return std::nullopt;
  }
  if (devices.infos.empty()) return devices.why_none;
  std::string seen;
  for (const DeviceInfo& info : devices.infos) {
    seen += cat(seen.empty() ? "" : ", ", info.name, " (sm_", info.compute_capability, ")");
  }
  return cat("needs a GPU of compute capability ", wanted / 10, ".", wanted % 10, or_else,
             ", found ", seen);
}

}  // namespace

std::optional<std::string> why_no_gpu(int exactly) {
  return why_none_matches([](int found, int wanted) { return found == wanted; }, exactly, "");
}

std::optional<std::string> why_no_gpu_from(int at_least) {
  return why_none_matches([](int found, int wanted) { return found >= wanted; }, at_least,
                          " or later");
}

std::vector<GpuInfo> list_gpus() {
  std::vector<GpuInfo> gpus;
  for (const DeviceInfo& info : cuda_devices().infos) {
    gpus.push_back({info.device.index, info.name, info.compute_capability});
  }
  return gpus;
}

}  // namespace sparsek
