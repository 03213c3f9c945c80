#pragma once

#include <cuda.h>

#include <cstdint>

namespace sparsek {

/// What TMA is to read: a 4-axis tensor of 16-bit elements whose first axis is contiguous.
struct TensorMapSpec {
  const void* data = nullptr;
  bool bfloat16 = false;
  std::int64_t shape[4] = {};   // innermost first
  std::int64_t stride[4] = {};  // elements; stride[0] is 1
  int box_columns = 0;          // 64 or 32: rows of 128 or 64 bytes, swizzled over all of them
  int box_rows = 0;             // at most 256
};

/// Throws Error (cuda) when the driver refuses.
CUtensorMap make_tensor_map(const char* name, const TensorMapSpec& spec);

}  // namespace sparsek
