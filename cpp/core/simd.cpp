#include "core/simd.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/message.h"

namespace sparsek {
namespace {

SimdLevel detected_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) {
    return SimdLevel::baseline;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? SimdLevel::avx512 : SimdLevel::avx2;
#else
  return SimdLevel::baseline;
#endif
}

SimdLevel wanted_level() {
  const char* text = std::getenv("SPARSEK_SIMD");
  const std::string name = text == nullptr ? "" : text;
  if (name == "baseline") return SimdLevel::baseline;
  if (name == "avx2") return SimdLevel::avx2;
  require_value(name.empty() || name == "avx512",
                "SPARSEK_SIMD: expected baseline, avx2 or avx512, got \"", name, "\"");
  return SimdLevel::avx512;
}

}  // namespace

SimdLevel simd_level() {
  static const SimdLevel level = std::min(detected_level(), wanted_level());
  return level;
}

}  // namespace sparsek
