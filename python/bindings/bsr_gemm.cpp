#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arrays.h"
#include "caller.h"

namespace sparsek::python {
namespace {

using namespace nb::literals;

/// The plan of a structure, and its memory.
struct BoundBsrPlan {
  Array memory;
  void* data;
};

/// `object`: a BsrMatrixView, or an array, which `array` keeps alive.
MatrixOperand operand_of(const Caller& caller, const char* name, const nb::object& object,
                         Argument* array) {
  const BoundBsrMatrix* matrix = nullptr;
  if (nb::try_cast(object, matrix)) return matrix->view;
  *array = caller.read(name, object);
  return array->view(name);
}

nb::object run(const nb::object& a_object, const nb::object& b_object, const nb::object& c_object,
               nb::object out_object, const std::string& out_dtype, float alpha, float beta,
               const BoundBsrPlan* a_plan, const BoundBsrPlan* b_plan, const BoundBsrPlan* out_plan,
               const std::string& backend, nb::handle like, nb::handle library,
               const Exchange* exchange, nb::handle export_array) {
  const Caller caller{library, exchange, export_array, like};
  Argument a, b, c, out;
  Workspace workspace;
  BsrGemmArgs args;
  args.a = operand_of(caller, "a", a_object, &a);
  args.b = operand_of(caller, "b", b_object, &b);
  if (!c_object.is_none()) args.c = operand_of(caller, "c", c_object, &c);
  if (out_object.is_none()) {
    out = caller.make("out", out_dtype, args.a.rows(), args.b.cols());
    out_object = out.object;
    args.out = out.view("out");
  } else {
    args.out = operand_of(caller, "out", out_object, &out);
  }
  args.alpha = alpha;
  args.beta = beta;
  if (a_plan != nullptr) args.a_plan = a_plan->data;
  if (b_plan != nullptr) args.b_plan = b_plan->data;
  if (out_plan != nullptr) args.out_plan = out_plan->data;
  args.backend = backend;
  const Device device = args.a.values().device;
  const std::uintptr_t stream = caller.stream(device);
  args.stream = reinterpret_cast<void*>(stream);
  {
    nb::gil_scoped_release release;
    bsr_gemm(args, [&](std::size_t bytes) { return caller.allocate(bytes, device, &workspace); });
  }
  caller.finish(device, stream);
  return out_object;
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

  nb::class_<BoundBsrPlan>(module, "BsrPlan",
                           "What make_bsr_plan makes of a structure, ready when it returns.")
      .def(
          "__init__",
          [](BoundBsrPlan* self, const BoundBsrMatrix& matrix, bool right, Array memory,
             std::uintptr_t stream) {
            void* const data = const_cast<void*>(memory.data());
            {
              nb::gil_scoped_release release;
              make_bsr_plan(matrix.view, right ? OperandSide::right : OperandSide::left, data,
                            reinterpret_cast<void*>(stream));
              synchronize(matrix.view.values.device, reinterpret_cast<void*>(stream));
            }
            new (self) BoundBsrPlan{std::move(memory), data};
          },
          nb::kw_only(), "matrix"_a, "right"_a, "memory"_a, "stream"_a);
  module.def(
      "bsr_plan_bytes",
      [](const BoundBsrMatrix& matrix, bool right) {
        return bsr_plan_bytes(matrix.view, right ? OperandSide::right : OperandSide::left);
      },
      nb::kw_only(), "matrix"_a, "right"_a,
      "Bytes of the plan of a matrix as left or right operand; 0 where no backend uses one.");

  module.def("bsr_gemm", &run, "a"_a, "b"_a, "c"_a.none(), "out"_a.none(), "out_dtype"_a, "alpha"_a,
             "beta"_a, "a_plan"_a.none(), "b_plan"_a.none(), "out_plan"_a.none(), "backend"_a,
             "like"_a, "library"_a, "exchange"_a.none(), "export_array"_a, "See sparsek.bsr_gemm.");
}

}  // namespace sparsek::python
