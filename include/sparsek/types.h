#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sparsek {

enum class DType : std::uint8_t { float16, bfloat16, float32, int32, int64 };

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device& a, const Device& b) {
    return a.type == b.type && a.index == b.index;
  }
  friend bool operator!=(const Device& a, const Device& b) { return !(a == b); }
};

/// Bytes of one element.
std::size_t size_of(DType dtype);

std::string to_string(DType dtype);    // "float16"
std::string to_string(Device device);  // "cpu", "cuda:0"

}  // namespace sparsek
