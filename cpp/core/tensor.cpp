#include "sparsek/tensor.h"

#include "core/message.h"

namespace sparsek {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::float32:
    case DType::int32: return 4;
    case DType::int64: return 8;
  }
  return 0;
}

std::string to_string(DType dtype) {
  switch (dtype) {
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::float32: return "float32";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
  }
  return "unknown";
}

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : cat("cuda:", device.index);
}

std::int64_t TensorView::num_elements() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
  return count;
}

TensorView contiguous_view(void* data, DType dtype, Device device,
                           std::initializer_list<std::int64_t> shape) {
  require_value(shape.size() <= TensorView::kMaxRank,
                "contiguous_view: expected a rank of at most ", TensorView::kMaxRank, ", got ",
                shape.size());
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  for (std::int64_t extent : shape) view.shape[view.rank++] = extent;
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.stride[axis] = stride;
    stride *= view.shape[axis];
  }
  return view;
}

std::string shape_string(const TensorView& tensor) {
  std::string text = "(";
  for (int axis = 0; axis < tensor.rank; ++axis) {
    text += cat(tensor.shape[axis], axis + 1 < tensor.rank ? ", " : tensor.rank == 1 ? "," : "");
  }
  return text + ")";
}

}  // namespace sparsek
