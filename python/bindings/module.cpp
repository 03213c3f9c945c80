#include <nanobind/nanobind.h>

#include "arrays.h"

namespace nb = nanobind;

namespace {

PyObject* python_type(sparsek::ErrorKind kind) {
  switch (kind) {
    case sparsek::ErrorKind::invalid_value: return PyExc_ValueError;
    case sparsek::ErrorKind::invalid_type: return PyExc_TypeError;
    case sparsek::ErrorKind::unsupported: return PyExc_NotImplementedError;
    case sparsek::ErrorKind::cuda: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The native part of sparsek; use the functions of the package itself.";
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const sparsek::Error& e) {
      PyErr_SetString(python_type(e.kind()), e.what());
    }
  });
  sparsek::python::bind_system(module);
  sparsek::python::bind_exchange(module);
  sparsek::python::bind_attention(module);
  sparsek::python::bind_bsr_gemm(module);
  sparsek::python::bind_jax(module);
}
