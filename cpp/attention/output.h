#pragma once

#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE

namespace sparsek::attn {

// Where a fused kernel writes.

struct Output {
  void* data = nullptr;
  std::int64_t batch_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int32_t value_dim = 0;
  bool vectors = false;  // rows can be written 16 bytes at a time
  bool float32 = false;  // of parts that are still to be added: rows of multiples of 8
};

struct Lse {
  float* data = nullptr;  // null: not wanted
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

/// Where a row of an Output or an Lse begins.
template <class Element, class Rows>
SPARSEK_HOST_DEVICE Element* row_of(const Rows& rows, std::int64_t batch, std::int64_t head,
                                    std::int64_t row) {
  return static_cast<Element*>(rows.data) + batch * rows.batch_stride + head * rows.head_stride +
         row * rows.row_stride;
}

}  // namespace sparsek::attn
