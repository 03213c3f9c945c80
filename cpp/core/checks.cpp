#include "core/checks.h"

#include "core/extent.h"
#include "core/message.h"

namespace sparsek {

void check_tensor(const char* name, const TensorView& tensor, int rank) {
  require_value(tensor.rank == rank, name, ": expected ", rank, " axes, got shape ",
                ShapeOf{tensor});
  const bool floating = tensor.dtype == DType::float16 || tensor.dtype == DType::bfloat16 ||
                        tensor.dtype == DType::float32;
  require(floating, ErrorKind::invalid_type, name,
          ": expected dtype float16, bfloat16 or float32, got ", tensor.dtype);
  for (int axis = 0; axis < rank; ++axis) {
    require_value(tensor.shape[axis] >= 0, name,
                  ": expected a shape without negative extents, got ", ShapeOf{tensor});
  }
  require_value(tensor.data != nullptr || tensor.num_elements() == 0, name,
                ": expected an address, got null for shape ", ShapeOf{tensor});
}

void check_contiguous_last_axis(const char* name, const TensorView& tensor) {
  const int last = tensor.rank - 1;
  // Without elements no stride is used, and numpy has 0 for all.
  if (tensor.num_elements() == 0 || tensor.shape[last] <= 1) return;
  require_value(tensor.stride[last] == 1, name,
                ": expected a contiguous last axis (stride 1), got stride ", tensor.stride[last]);
}

void check_own_elements(const char* name, const TensorView& tensor) {
  if (tensor.num_elements() == 0) return;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    require_value(tensor.shape[axis] == 1 || tensor.stride[axis] != 0, name,
                  ": expected memory for each element, got stride 0 on axis ", axis, " of shape ",
                  ShapeOf{tensor});
  }
}

void check_apart(const char* name, const TensorView& output, const char* input_name,
                 const TensorView& input) {
  if (output.num_elements() == 0 || input.num_elements() == 0) return;
  const Extent of_output(output), of_input(input);
  require_value(of_output.first != of_input.first && !of_output.holds_an_end_of(of_input) &&
                    !of_input.holds_an_end_of(of_output),
                name, ": expected memory that is not ", input_name, "'s, got address ", output.data,
                ", ", input_name, " is at ", input.data);
}

void check_same_dtype(const char* name, const TensorView& tensor, const char* expected_name,
                      DType expected) {
  require(tensor.dtype == expected, ErrorKind::invalid_type, name, ": expected the dtype of ",
          expected_name, " (", expected, "), got ", tensor.dtype);
}

void check_same_device(const char* name, Device device, const char* expected_name,
                       Device expected) {
  require_value(device == expected, name, ": expected the device of ", expected_name, " (",
                expected, "), got ", device);
}

void check_extent(const char* name, const TensorView& tensor, int axis, const char* axis_name,
                  std::int64_t expected, const char* expected_name) {
  require_value(tensor.shape[axis] == expected, name, ": expected ", axis_name, " ", expected,
                " (that of ", expected_name, "), got ", tensor.shape[axis]);
}

int row_alignment(const TensorView& tensor) {
  if (tensor.num_elements() == 0) return 16;
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(tensor.data) | 16u;
  for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
    // The stride of an axis with one element is never used, and frameworks fill it with anything.
    if (tensor.shape[axis] <= 1) continue;
    if (tensor.stride[axis] < 0) return 0;
    bits |= static_cast<std::uint64_t>(tensor.stride[axis]) * size_of(tensor.dtype);
  }
  return static_cast<int>(bits & (~bits + 1));
}

}  // namespace sparsek
