#include "arrays.h"

#include <string>

namespace sparsek::python {
namespace {

std::string dtype_name(nb::dlpack::dtype dtype) {
  const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string kind = dtype.code < 7 ? kinds[dtype.code] : "dtype ";
  return kind + std::to_string(dtype.bits);
}

std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Float:
      if (dtype.bits == 16) return DType::float16;
      if (dtype.bits == 32) return DType::float32;
      return std::nullopt;
    case nb::dlpack::dtype_code::Bfloat:
      if (dtype.bits == 16) return DType::bfloat16;
      return std::nullopt;
    case nb::dlpack::dtype_code::Int:
      if (dtype.bits == 32) return DType::int32;
      if (dtype.bits == 64) return DType::int64;
      return std::nullopt;
    default: return std::nullopt;
  }
}

bool is_contiguous(const Array& array) {
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) == 0) return true;
    if (array.shape(axis) > 1 && array.stride(axis) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  return true;
}

}  // namespace

nb::dlpack::dltensor describe(const Array& array) {
  nb::dlpack::dltensor tensor;
  tensor.data = const_cast<void*>(array.data());
  tensor.device = {array.device_type(), array.device_id()};
  tensor.ndim = static_cast<std::int32_t>(array.ndim());
  tensor.dtype = array.dtype();
  tensor.shape = const_cast<std::int64_t*>(array.shape_ptr());
  tensor.strides = const_cast<std::int64_t*>(array.stride_ptr());
  return tensor;
}

Device device_of(const char* name, nb::dlpack::device device) {
  switch (device.device_type) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value: return {DeviceType::cpu, 0};
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value: return {DeviceType::cuda, device.device_id};
    default:
      throw Error(ErrorKind::invalid_value,
                  std::string(name) +
                      ": expected an array on the CPU or a CUDA device, got DLPack "
                      "device type " +
                      std::to_string(device.device_type));
  }
}

std::string shape_text(const nb::dlpack::dltensor& tensor) {
  std::string text = "(";
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    text += std::to_string(tensor.shape[axis]);
    text += axis + 1 < tensor.ndim ? ", " : tensor.ndim == 1 ? "," : "";
  }
  return text + ")";
}

bool has_compact_strides(const nb::dlpack::dltensor& tensor) {
  std::int64_t expected = 1;
  for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
    if (tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

TensorView view_of(const char* name, const Array& array) { return view_of(name, describe(array)); }

TensorView view_of(const char* name, const nb::dlpack::dltensor& tensor) {
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype) {
    throw Error(ErrorKind::invalid_type, std::string(name) +
                                             ": expected dtype float16, bfloat16 or float32, got " +
                                             dtype_name(tensor.dtype));
  }
  if (tensor.ndim == 0 || tensor.ndim > TensorView::kMaxRank) {
    throw Error(ErrorKind::invalid_value, std::string(name) + ": expected 1 to " +
                                              std::to_string(TensorView::kMaxRank) + " axes, got " +
                                              std::to_string(tensor.ndim));
  }
  TensorView view;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = *dtype;
  view.device = device_of(name, tensor.device);
  view.rank = tensor.ndim;
  for (int axis = 0; axis < view.rank; ++axis) {
    view.shape[axis] = tensor.shape[axis];
    view.stride[axis] = tensor.strides[axis];
  }
  return view;
}

template <class Index>
const Index* index_data(const char* name, const Array& array) {
  const nb::dlpack::dtype dtype = array.dtype();
  // Bitmaps are bit patterns: not every library has unsigned integers.
  const bool integer = dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int) ||
                       dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
  if (!integer || dtype.bits != 8 * sizeof(Index)) {
    throw Error(ErrorKind::invalid_type, std::string(name) + ": expected int" +
                                             std::to_string(8 * sizeof(Index)) + ", got " +
                                             dtype_name(dtype));
  }
  if (!is_contiguous(array)) {
    throw Error(ErrorKind::invalid_value, std::string(name) + ": expected a contiguous array");
  }
  return static_cast<const Index*>(array.data());
}

template const std::int32_t* index_data(const char*, const Array&);
template const std::int64_t* index_data(const char*, const Array&);
template const std::uint32_t* index_data(const char*, const Array&);

}  // namespace sparsek::python
