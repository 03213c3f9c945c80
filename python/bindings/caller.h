#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // else a string is cast as an unknown class, and fails at run time

#include <cstdint>
#include <string>

#include "arrays.h"
#include "exchange.h"

namespace sparsek::python {

/// An array of a call, with what keeps it alive.
struct Argument {
  nb::object object;
  Array owner;  // empty where the object itself was read
  nb::dlpack::dltensor tensor;

  TensorView view(const char* name) const { return view_of(name, tensor); }
};

/// Memory on the device for the length of a call.
struct Workspace {
  ExchangeMemory memory{nullptr, nullptr};
  Argument array;  // where the library has no allocator to call without Python
};

/// How a call reads its arrays and makes new ones: by the adapter of the library that the caller
/// computes with (frameworks), or its exchange functions where it has some.
struct Caller {
  nb::handle library;
  const Exchange* exchange;
  nb::handle export_array;
  nb::handle like;  // new arrays are beside it

  Argument read(const char* name, nb::object array) const;

  template <class... Extents>
  Argument make(const char* name, const std::string& dtype, Extents... shape) const {
    if (exchange != nullptr) return read(name, exchange->new_empty(like, dtype, shape...));
    return read(name, library.attr("empty")(nb::make_tuple(shape...), dtype, like));
  }
  Argument make_like(const char* name) const {
    return read(name, library.attr("empty_like")(like));
  }
  /// Bytes on the device of `like`. To be called without the GIL.
  void* allocate(std::size_t bytes, const Device& device, Workspace* workspace) const;

  /// That of `like`, which is on `device`, as an address.
  std::uintptr_t stream(const Device& device) const;
  /// Called after work was enqueued on a stream of `device`.
  void finish(const Device& device, std::uintptr_t stream) const;
};

}  // namespace sparsek::python
