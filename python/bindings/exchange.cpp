#include "exchange.h"

#include <nanobind/stl/optional.h>

#include "arrays.h"

namespace sparsek::python {

// As dlpack.h 1.3 has it; functions that are not called here are opaque.
struct ExchangeHeader {
  std::uint32_t major, minor;
  const ExchangeHeader* previous;  // an older version, or null
};

struct ManagedTensor {
  std::uint32_t major, minor;
  void* manager_context;
  void (*deleter)(ManagedTensor*);  // or null
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeApi {
  ExchangeHeader header;
  int (*managed_tensor_allocator)(nb::dlpack::dltensor* prototype, ManagedTensor** tensor,
                                  void* error_context, SetError set_error);
  void (*managed_tensor_from_py_object_no_sync)();
  void (*managed_tensor_to_py_object_no_sync)();
  int (*dltensor_from_py_object_no_sync)(void* array, nb::dlpack::dltensor* tensor);  // or null
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

std::optional<Exchange> Exchange::of(nb::handle array_type, nb::dict dtypes) {
  const nb::object capsule = nb::getattr(array_type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return std::nullopt;
  const auto* header = static_cast<const ExchangeHeader*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (header != nullptr && header->major != 1) header = header->previous;
  if (header == nullptr) return std::nullopt;
  const auto* api = reinterpret_cast<const ExchangeApi*>(header);
  if (api->dltensor_from_py_object_no_sync == nullptr) return std::nullopt;
  return Exchange(api, array_type, std::move(dtypes));
}

bool Exchange::read(nb::handle array, nb::dlpack::dltensor* tensor) const {
  if (!PyObject_TypeCheck(array.ptr(), reinterpret_cast<PyTypeObject*>(array_type_.ptr()))) {
    return false;
  }
  if (api_->dltensor_from_py_object_no_sync(array.ptr(), tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  return tensor->strides != nullptr || tensor->ndim == 0;
}

void* Exchange::allocate(nb::dlpack::device device, std::size_t bytes,
                         ExchangeMemory* memory) const {
  if (api_->managed_tensor_allocator == nullptr) return nullptr;
  std::int64_t size = static_cast<std::int64_t>(bytes);
  nb::dlpack::dltensor prototype{};
  prototype.device = device;
  prototype.ndim = 1;
  prototype.dtype = nb::dtype<std::uint8_t>();
  prototype.shape = &size;
  const SetError ignore = [](void*, const char*, const char*) {};
  ManagedTensor* made = nullptr;
  if (api_->managed_tensor_allocator(&prototype, &made, nullptr, ignore) != 0) return nullptr;
  *memory = ExchangeMemory(made, [](ManagedTensor* tensor) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
  return static_cast<char*>(made->tensor.data) + made->tensor.byte_offset;
}

std::uintptr_t Exchange::current_stream(int device_index) const {
  void* stream = nullptr;
  if (api_->current_work_stream(nb::device::cuda::value, device_index, &stream) != 0) {
    nb::raise_python_error();
  }
  return reinterpret_cast<std::uintptr_t>(stream);
}

void bind_exchange(nb::module_& module) {
  nb::class_<Exchange>(module, "Exchange",
                       "The C functions by which a library shows its arrays and its stream.")
      .def("current_stream", &Exchange::current_stream, nb::arg("device_index"),
           "The library's current stream on a CUDA device, as an address.");
  module.def("exchange_of", &Exchange::of, nb::arg("array_type"), nb::arg("dtypes"),
             "That of an array type; None where it has none that is understood here.");
}

}  // namespace sparsek::python
