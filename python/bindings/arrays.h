#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "sparsek/sparsek.h"

namespace sparsek::python {

namespace nb = nanobind;

// Read-only is what every library can export; outputs are checked for writability in Python.
using Array = nb::ndarray<nb::ro>;
using OptionalArray = std::optional<Array>;

nb::dlpack::dltensor describe(const Array& array);

/// "(2, 1024, 16, 64)"
std::string shape_text(const nb::dlpack::dltensor& tensor);

/// The strides that a C-contiguous array has, those of axes of one element included.
bool has_compact_strides(const nb::dlpack::dltensor& tensor);

/// Shape, strides, dtype and device of an array as the C++ library reads them. Throws Error naming
/// the argument.
TensorView view_of(const char* name, const nb::dlpack::dltensor& tensor);
TensorView view_of(const char* name, const Array& array);

/// The address of an index array. Throws Error unless it is contiguous and of the dtype.
template <class Index>
const Index* index_data(const char* name, const Array& array);
template <class Index>
const Index* index_data(const char* name, const OptionalArray& array) {
  return array ? index_data<Index>(name, *array) : nullptr;
}

Device device_of(const char* name, nb::dlpack::device device);

/// A block mask with the arrays it reads.
struct BoundBlockMask {
  BlockMaskView view;
  Array indices;
  OptionalArray offsets, counts, bitmap_indices, bitmaps;
};

/// A block-sparse matrix with the arrays it reads.
struct BoundBsrMatrix {
  BsrMatrixView view;
  Array values, row_offsets, col_indices;
  OptionalArray value_indices;
};

void bind_attention(nb::module_& module);
void bind_exchange(nb::module_& module);
void bind_jax(nb::module_& module);
void bind_bsr_gemm(nb::module_& module);
void bind_system(nb::module_& module);

}  // namespace sparsek::python
