#pragma once

#include <cstdint>

namespace sparsek::attn {

/// q, k or v as kernels without TMA read it.
struct Input {
  const void* data = nullptr;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int32_t row_bytes = 0;
  std::int32_t dim = 0;
  bool vectors = false;  // rows can be read 16 bytes at a time
};

}  // namespace sparsek::attn
