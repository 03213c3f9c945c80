#pragma once

#include <cstdint>

#include "sparsek/tensor.h"

namespace sparsek {

/// Where the elements of a tensor lie, of which there is one at least.
struct Extent {
  std::uintptr_t first;
  std::uintptr_t last;
  std::int64_t bytes;  // from the first one to behind the last
  bool has_gaps;

  explicit Extent(const TensorView& tensor) {
    std::int64_t before = 0, behind = 0;
    for (int axis = 0; axis < tensor.rank; ++axis) {
      const std::int64_t length = (tensor.shape[axis] - 1) * tensor.stride[axis];
      (length < 0 ? before : behind) += length;
    }
    const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    const std::int64_t places = behind - before + 1;
    first = address + static_cast<std::uintptr_t>(before * size);
    last = address + static_cast<std::uintptr_t>(behind * size);
    bytes = places * size;
    has_gaps = places != tensor.num_elements();
  }
  bool holds_an_end_of(const Extent& other) const {
    const auto holds = [&](std::uintptr_t at) { return first <= at && at <= last; };
    return !has_gaps && (holds(other.first) || holds(other.last));
  }
};

}  // namespace sparsek
