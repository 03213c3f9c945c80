#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <utility>
#include <variant>

#include "arrays.h"

namespace sparsek::python {
namespace {

using namespace nb::literals;

using Operand = std::variant<const BoundBsrMatrix*, Array>;

MatrixOperand operand_of(const char* name, const Operand& operand) {
  if (const auto* matrix = std::get_if<const BoundBsrMatrix*>(&operand)) return (*matrix)->view;
  return view_of(name, std::get<Array>(operand));
}

void run(const Operand& a, const Operand& b, const std::optional<Operand>& c, const Operand& out,
         float alpha, float beta, const std::string& backend, std::uintptr_t stream) {
  BsrGemmArgs args;
  args.a = operand_of("a", a);
  args.b = operand_of("b", b);
  if (c) args.c = operand_of("c", *c);
  args.out = operand_of("out", out);
  args.alpha = alpha;
  args.beta = beta;
  args.backend = backend;
  args.stream = reinterpret_cast<void*>(stream);
  nb::gil_scoped_release release;
  bsr_gemm(args);
}

}  // namespace

void bind_bsr_gemm(nb::module_& module) {
  nb::class_<BoundBsrMatrix>(module, "BsrMatrixView",
                             "The arrays of a BSRMatrix as the native code reads them.")
      .def(
          "__init__",
          [](BoundBsrMatrix* self, std::int64_t rows, std::int64_t cols, Array values,
             Array row_offsets, Array col_indices, OptionalArray value_indices) {
            BoundBsrMatrix matrix{{}, values, row_offsets, col_indices, value_indices};
            matrix.view.rows = rows;
            matrix.view.cols = cols;
            matrix.view.values = view_of("values", values);
            matrix.view.row_offsets = index_data<std::int64_t>("row_offsets", row_offsets);
            matrix.view.col_indices = index_data<std::int32_t>("col_indices", col_indices);
            matrix.view.value_indices = index_data<std::int32_t>("value_indices", value_indices);
            new (self) BoundBsrMatrix(std::move(matrix));
          },
          nb::kw_only(), "rows"_a, "cols"_a, "values"_a, "row_offsets"_a, "col_indices"_a,
          "value_indices"_a.none());

  module.def("bsr_gemm", &run, nb::kw_only(), "a"_a, "b"_a, "c"_a.none(), "out"_a, "alpha"_a,
             "beta"_a, "backend"_a, "stream"_a, "See sparsek.bsr_gemm.");
}

}  // namespace sparsek::python
