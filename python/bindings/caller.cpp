#include "caller.h"

#include <utility>

namespace sparsek::python {

Argument Caller::read(const char* name, nb::object array) const {
  Argument argument{std::move(array), {}, {}};
  if (exchange != nullptr && exchange->read(argument.object, &argument.tensor)) return argument;
  if (!nb::try_cast(export_array(argument.object), argument.owner)) {
    throw Error(ErrorKind::invalid_type, std::string(name) +
                                             ": expected an array that DLPack can describe, got " +
                                             nb::type_name(argument.object.type()).c_str());
  }
  argument.tensor = describe(argument.owner);
  return argument;
}

void* Caller::allocate(std::size_t bytes, const Device& device, Workspace* workspace) const {
  if (exchange != nullptr) {
    const int type =
        device.type == DeviceType::cuda ? nb::device::cuda::value : nb::device::cpu::value;
    void* const data = exchange->allocate({type, device.index}, bytes, &workspace->memory);
    if (data != nullptr) return data;
  }
  nb::gil_scoped_acquire acquire;
  PyErr_Clear();  // a torch dispatch mode's; the library raises its own below
  workspace->array = make("workspace", "uint8", bytes);
  const nb::dlpack::dltensor& tensor = workspace->array.tensor;
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

std::uintptr_t Caller::stream(const Device& device) const {
  if (exchange == nullptr) return nb::cast<std::uintptr_t>(library.attr("stream")(like));
  return device.type == DeviceType::cuda ? exchange->current_stream(device.index) : 0;
}

void Caller::finish(const Device& device, std::uintptr_t stream) const {
  if (exchange == nullptr) library.attr("finish")(device.index, stream);
}

}  // namespace sparsek::python
