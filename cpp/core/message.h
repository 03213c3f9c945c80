#pragma once

#include <sstream>
#include <string>

#include "sparsek/error.h"
#include "sparsek/tensor.h"

namespace sparsek {

// Parts of a message are passed as they are, not as strings: a check that holds then builds none.
inline std::ostream& operator<<(std::ostream& stream, DType dtype) {
  return stream << to_string(dtype);
}
inline std::ostream& operator<<(std::ostream& stream, Device device) {
  return stream << to_string(device);
}
struct ShapeOf {
  const TensorView& tensor;
};
inline std::ostream& operator<<(std::ostream& stream, const ShapeOf& shape) {
  return stream << shape_string(shape.tensor);
}

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
