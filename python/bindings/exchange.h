#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace sparsek::python {

namespace nb = nanobind;

struct ExchangeApi;
struct ManagedTensor;

/// Memory of a library's own allocator, which gets it back with the pointer's end.
using ExchangeMemory = std::unique_ptr<ManagedTensor, void (*)(ManagedTensor*)>;

/// The C functions by which a library shows its arrays and its current stream without a Python
/// call: DLPack 1.3's `__dlpack_c_exchange_api__`.
class Exchange {
 public:
  /// That of an array type; nothing where it has none that is understood here.
  static std::optional<Exchange> of(nb::handle array_type);

  /// False when the array is not of the type, or cannot be described. What is read borrows from the
  /// array: shape and strides are its own.
  bool read(nb::handle array, nb::dlpack::dltensor* tensor) const;

  /// The address of bytes for the library's current stream on a device; null where it gives none.
  /// Needs no GIL.
  void* allocate(nb::dlpack::device device, std::size_t bytes, ExchangeMemory* memory) const;

  /// The stream on which the library would now enqueue work for a CUDA device, as an address.
  std::uintptr_t current_stream(int device_index) const;

 private:
  Exchange(const ExchangeApi* api, nb::handle array_type)
      : api_(api), array_type_(nb::borrow(array_type)) {}

  const ExchangeApi* api_;  // lives as long as the process
  nb::object array_type_;
};

}  // namespace sparsek::python
