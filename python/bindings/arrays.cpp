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

Device device_of(const char* name, const Array& array) {
  switch (array.device_type()) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value: return {DeviceType::cpu, 0};
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value: return {DeviceType::cuda, array.device_id()};
    default:
      throw Error(ErrorKind::invalid_value,
                  std::string(name) +
                      ": expected an array on the CPU or a CUDA device, got DLPack "
                      "device type " +
                      std::to_string(array.device_type()));
  }
}

TensorView view_of(const char* name, const Array& array) {
  const std::optional<DType> dtype = dtype_of(array.dtype());
  if (!dtype) {
    throw Error(ErrorKind::invalid_type, std::string(name) +
                                             ": expected dtype float16, bfloat16 or float32, got " +
                                             dtype_name(array.dtype()));
  }
  if (array.ndim() == 0 || array.ndim() > TensorView::kMaxRank) {
    throw Error(ErrorKind::invalid_value, std::string(name) + ": expected 1 to " +
                                              std::to_string(TensorView::kMaxRank) + " axes, got " +
                                              std::to_string(array.ndim()));
  }
  TensorView view;
  view.data = const_cast<void*>(array.data());
  view.dtype = *dtype;
  view.device = device_of(name, array);
  view.rank = static_cast<int>(array.ndim());
  for (int axis = 0; axis < view.rank; ++axis) {
    view.shape[axis] = static_cast<std::int64_t>(array.shape(axis));
    view.stride[axis] = array.stride(axis);
  }
  return view;
}

TensorView view_of(const char* name, const OptionalArray& array) {
  return array ? view_of(name, *array) : TensorView{};
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
