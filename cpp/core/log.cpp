#include "core/log.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace sparsek {

bool log_enabled() {
  static const bool enabled = [] {
    const char* value = std::getenv("SPARSEK_LOG");
    return value != nullptr && value[0] != '\0' && std::string(value) != "0";
  }();
  return enabled;
}

void log_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  std::lock_guard<std::mutex> lock(mutex);
  if (seen.insert(line).second) std::fprintf(stderr, "sparsek: %s\n", line.c_str());
}

}  // namespace sparsek
