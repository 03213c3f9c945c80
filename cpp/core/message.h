#pragma once

#include <sstream>
#include <string>

#include "sparsek/error.h"

namespace sparsek {

/// One string from anything that has <<.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, cat(parts...));
}

template <class... Parts>
void require(bool condition, ErrorKind kind, const Parts&... parts) {
  if (!condition) fail(kind, parts...);
}

template <class... Parts>
void require_value(bool condition, const Parts&... parts) {
  require(condition, ErrorKind::invalid_value, parts...);
}

}  // namespace sparsek
