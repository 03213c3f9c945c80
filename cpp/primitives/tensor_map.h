#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "sparsek/types.h"

namespace sparsek {

struct MapAxis {
  std::int64_t extent;
  std::int64_t stride;  // in elements; that of the first axis, which is contiguous, is not read
  int box;
};

/// A TMA descriptor of an array of 16-bit elements with up to 5 axes, innermost first, swizzled
/// over the box's first axis (16, 32 or 64 elements); what lies outside reads as zero. Throws Error
/// (cuda), naming the array, when the driver refuses.
CUtensorMap make_tensor_map(const char* name, DType dtype, const void* data,
                            std::initializer_list<MapAxis> axes);

}  // namespace sparsek
