#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace sparsek::python {

namespace nb = nanobind;

struct ExchangeApi;
struct ManagedTensor;

/// Memory of a library's own allocator, which gets it back with the pointer's end.
using ExchangeMemory = std::unique_ptr<ManagedTensor, void (*)(ManagedTensor*)>;

/// The C functions by which a library shows its arrays and its current stream without a Python
/// call, DLPack 1.3's `__dlpack_c_exchange_api__`; and new arrays by one such call.
class Exchange {
 public:
  /// That of an array type; nothing where it has none that is understood here. `dtypes` are the
  /// library's own by name, for `new_empty`.
  static std::optional<Exchange> of(nb::handle array_type, nb::dict dtypes);

  /// False when the array is not of the type, or cannot be described. What is read borrows from the
  /// array: shape and strides are its own.
  bool read(nb::handle array, nb::dlpack::dltensor* tensor) const;

  /// An array beside one of the library, by the method that it has for that.
  template <class... Extents>
  nb::object new_empty(nb::handle like, const std::string& dtype, Extents... shape) const {
    return like.attr("new_empty")(shape..., nb::arg("dtype") = dtypes_[dtype.c_str()]);
  }

  /// The address of bytes for the library's current stream on a device; null where it gives none.
  /// Needs no GIL.
  void* allocate(nb::dlpack::device device, std::size_t bytes, ExchangeMemory* memory) const;

  /// The stream on which the library would now enqueue work for a CUDA device, as an address.
  std::uintptr_t current_stream(int device_index) const;

 private:
  Exchange(const ExchangeApi* api, nb::handle array_type, nb::dict dtypes)
      : api_(api), array_type_(nb::borrow(array_type)), dtypes_(std::move(dtypes)) {}

  const ExchangeApi* api_;  // lives as long as the process
  nb::object array_type_;
  nb::dict dtypes_;
};

}  // namespace sparsek::python
