#pragma once

#include <cstdint>

namespace sparsek::attn {

// Where a fused kernel writes.

struct Output {
  void* data = nullptr;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int32_t value_dim = 0;
  bool vectors = false;  // rows can be written 16 bytes at a time
};

struct Lse {
  float* data = nullptr;  // null: not wanted
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

}  // namespace sparsek::attn
