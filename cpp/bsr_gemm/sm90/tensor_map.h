#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "sparsek/types.h"

namespace sparsek::bsr::sm90 {

struct MapAxis {
  std::int64_t extent;
  std::int64_t stride;  // in elements; that of the first axis, which is contiguous, is not read
  int box;
};

/// A TMA descriptor of an array of 16-bit elements, swizzled over the box's first axis (32, 64 or
/// 128 bytes); what lies outside reads as zero. Throws Error.
CUtensorMap make_tensor_map(DType dtype, const void* data, std::initializer_list<MapAxis> axes);

}  // namespace sparsek::bsr::sm90
