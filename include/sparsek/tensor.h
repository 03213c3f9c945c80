#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "sparsek/types.h"

namespace sparsek {

/// A strided array that somebody else owns. Strides count elements, not bytes.
struct TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::float32;
  Device device;
  int rank = 0;  // 0: no tensor was given
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};

  bool given() const { return rank != 0; }
  std::int64_t num_elements() const;
};

/// A view of contiguous memory in C order.
TensorView contiguous_view(void* data, DType dtype, Device device,
                           std::initializer_list<std::int64_t> shape);

/// "(2, 1024, 16, 64)"
std::string shape_string(const TensorView& tensor);

}  // namespace sparsek
