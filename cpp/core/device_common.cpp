#include "core/device.h"
#include "core/message.h"
#include "sparsek/system.h"

namespace sparsek {
namespace {

std::optional<std::string> why_none_matches(bool (*matches)(int, int), int wanted,
                                            const std::string& wanted_text) {
  std::string why_none;
  const std::vector<DeviceInfo> devices = cuda_devices(&why_none);
  if (devices.empty()) return why_none;
  std::string seen;
  for (const DeviceInfo& info : devices) {
    if (matches(info.compute_capability, wanted)) return std::nullopt;
    seen += cat(seen.empty() ? "" : ", ", info.name, " (sm_", info.compute_capability, ")");
  }
  return cat("needs a GPU of compute capability ", wanted_text, ", found ", seen);
}

}  // namespace

std::optional<std::string> why_no_gpu(int exactly) {
  return why_none_matches([](int found, int wanted) { return found == wanted; }, exactly,
                          cat(exactly / 10, ".", exactly % 10));
}

std::optional<std::string> why_no_gpu_from(int at_least) {
  return why_none_matches([](int found, int wanted) { return found >= wanted; }, at_least,
                          cat(at_least / 10, ".", at_least % 10, " or later"));
}

std::vector<GpuInfo> list_gpus() {
  std::string why_none;
  std::vector<GpuInfo> gpus;
  for (const DeviceInfo& info : cuda_devices(&why_none)) {
    gpus.push_back({info.device.index, info.name, info.compute_capability});
  }
  return gpus;
}

}  // namespace sparsek
