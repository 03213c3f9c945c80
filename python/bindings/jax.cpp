// What sparsek.jax needs of the native code: the handlers that XLA calls, and the checks of a call
// while JAX traces it, when shapes and dtypes are all there is.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "arrays.h"
#include "xla_call.h"

namespace sparsek::python {
namespace {

using namespace nb::literals;

using ArraySpec = std::tuple<std::string, std::vector<std::int64_t>>;  // dtype, shape
using MaskSpec = std::vector<std::int64_t>;  // q_len, kv_len, q_block, kv_block, batches, heads
using MatrixSpec = std::tuple<std::int64_t, std::int64_t, ArraySpec, bool>;  // rows, cols, values,
                                                                             // transposed

// Never read: the checks ask for an aligned address that is not null.
void* const kSomewhere = reinterpret_cast<void*>(std::uintptr_t{4096});

nb::capsule capsule_of(xla::Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler));
}

Device device_of_index(int index) { return index < 0 ? Device{} : Device{DeviceType::cuda, index}; }

TensorView view_of(const char* name, const ArraySpec& spec, Device device) {
  const auto& [dtype, shape] = spec;
  TensorView view;
  view.data = kSomewhere;
  view.device = device;
  if (dtype == "float16") {
    view.dtype = DType::float16;
  } else if (dtype == "bfloat16") {
    view.dtype = DType::bfloat16;
  } else if (dtype != "float32") {
    throw Error(ErrorKind::invalid_type,
                std::string(name) + ": expected dtype float16, bfloat16 or float32, got " + dtype);
  }
  if (shape.empty() || shape.size() > TensorView::kMaxRank) {
    throw Error(ErrorKind::invalid_value, std::string(name) + ": expected 1 to " +
                                              std::to_string(TensorView::kMaxRank) + " axes, got " +
                                              std::to_string(shape.size()));
  }
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.shape[axis] = shape[axis];
    view.stride[axis] = stride;
    stride *= shape[axis];
  }
  return view;
}

TensorView bshd(const char* name, const ArraySpec& spec, Device device, bool heads_first) {
  TensorView view = view_of(name, spec, device);
  if (heads_first && view.rank == 4) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.stride[1], view.stride[2]);
  }
  return view;
}

std::string check_attention(const ArraySpec& q, const ArraySpec& k, const ArraySpec& v,
                            const std::optional<MaskSpec>& mask, bool causal,
                            std::optional<std::int64_t> window_left,
                            std::optional<std::int64_t> window_right, std::optional<float> scale,
                            bool heads_first, bool return_lse, bool return_weights,
                            const std::string& backend, int device_index) {
  const Device device = device_of_index(device_index);
  AttentionArgs args;
  args.q = bshd("q", q, device, heads_first);
  args.k = bshd("k", k, device, heads_first);
  args.v = bshd("v", v, device, heads_first);
  const auto& [dtype, q_shape] = q;
  std::vector<std::int64_t> out_shape = q_shape;
  out_shape.back() = std::get<1>(v).back();
  args.out = bshd("out", {dtype, out_shape}, device, heads_first);
  if (return_lse) {
    args.lse = contiguous_view(kSomewhere, DType::float32, device,
                               {args.q.shape[0], args.q.shape[2], args.q.shape[1]});
  }
  if (return_weights) {
    args.weights =
        contiguous_view(kSomewhere, args.q.dtype, device,
                        {args.q.shape[0], args.q.shape[2], args.q.shape[1], args.k.shape[1]});
    // Rows of a multiple of 16 bytes, as sparsek.jax asks XLA for.
    const std::int64_t padded = (args.k.shape[1] + 7) / 8 * 8;
    args.weights.stride = {args.q.shape[2] * args.q.shape[1] * padded, args.q.shape[1] * padded,
                           padded, 1};
  }
  BlockMaskView view;
  const std::int64_t offset = 0;
  if (mask) {
    const MaskSpec& spec = *mask;
    view.q_len = spec.at(0);
    view.kv_len = spec.at(1);
    view.q_block = spec.at(2);
    view.kv_block = spec.at(3);
    view.num_batches = spec.at(4);
    view.num_heads = spec.at(5);
    view.device = device;
    view.offsets = &offset;
    args.mask = &view;
  }
  args.causal = causal;
  args.window_left = window_left;
  args.window_right = window_right;
  args.scale = scale;
  args.backend = backend;
  return attention_backend(args);
}

std::string check_bsr_gemm(const MatrixSpec& matrix, const ArraySpec& dense, bool sparse_right,
                           const std::string& out_dtype, const std::optional<ArraySpec>& c,
                           float alpha, float beta, const std::string& backend, int device_index) {
  const Device device = device_of_index(device_index);
  const auto& [rows, cols, values, transposed] = matrix;
  const std::int64_t offset = 0;
  const std::int32_t column = 0;
  BsrMatrixView sparse;
  sparse.rows = rows;
  sparse.cols = cols;
  sparse.values = view_of("values", values, device);
  if (transposed) {
    std::swap(sparse.values.shape[1], sparse.values.shape[2]);
    std::swap(sparse.values.stride[1], sparse.values.stride[2]);
  }
  sparse.row_offsets = &offset;
  sparse.col_indices = &column;
  const TensorView other = view_of(sparse_right ? "a" : "b", dense, device);
  BsrGemmArgs args;
  args.a = sparse_right ? MatrixOperand(other) : MatrixOperand(sparse);
  args.b = sparse_right ? MatrixOperand(sparse) : MatrixOperand(other);
  const std::int64_t m = sparse_right ? other.shape[0] : rows;
  const std::int64_t n = sparse_right ? cols : other.rank > 1 ? other.shape[1] : 1;
  args.out = view_of("out", {out_dtype, {m, n}}, device);
  if (c) args.c = view_of("c", *c, device);
  args.alpha = alpha;
  args.beta = beta;
  args.a_plan = args.b_plan = kSomewhere;
  args.backend = backend;
  return bsr_gemm_backend(args);
}

}  // namespace

void bind_jax(nb::module_& module) {
  module.def(
      "jax_handlers",
      [] {
        nb::list handlers;
        const auto add = [&](const char* operation, const char* platform, xla::Handler* handler) {
          handlers.append(nb::make_tuple(operation, platform, capsule_of(handler)));
        };
        add("attention", "cpu", &xla::attention_cpu);
        add("attention", "CUDA", &xla::attention_cuda);
        add("bsr_gemm", "cpu", &xla::bsr_gemm_cpu);
        add("bsr_gemm", "CUDA", &xla::bsr_gemm_cuda);
        return handlers;
      },
      "(operation, platform, capsule) of each handler, for jax.ffi.register_ffi_target.");
  module.def("jax_check_attention", &check_attention, "q"_a, "k"_a, "v"_a, "mask"_a.none(),
             "causal"_a, "window_left"_a.none(), "window_right"_a.none(), "scale"_a.none(),
             "heads_first"_a, "return_lse"_a, "return_weights"_a, "backend"_a, "device_index"_a,
             "The backend that would run a call of such arrays (-1: on the CPU); raises where the "
             "call would.");
  module.def("jax_check_bsr_gemm", &check_bsr_gemm, "matrix"_a, "dense"_a, "sparse_right"_a,
             "out_dtype"_a, "c"_a.none(), "alpha"_a, "beta"_a, "backend"_a, "device_index"_a,
             "The backend that would run a call of such arrays (-1: on the CPU); raises where the "
             "call would.");
}

}  // namespace sparsek::python
