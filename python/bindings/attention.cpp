#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arrays.h"
#include "caller.h"

namespace sparsek::python {
namespace {

using namespace nb::literals;

BoundBlockMask make_mask(std::int64_t q_len, std::int64_t kv_len, std::int64_t q_block,
                         std::int64_t kv_block, std::int64_t num_batches, std::int64_t num_heads,
                         Array indices, OptionalArray offsets, OptionalArray counts,
                         OptionalArray bitmap_indices, OptionalArray bitmaps) {
  BoundBlockMask mask{{}, indices, offsets, counts, bitmap_indices, bitmaps};
  BlockMaskView& view = mask.view;
  view.q_len = q_len;
  view.kv_len = kv_len;
  view.q_block = q_block;
  view.kv_block = kv_block;
  view.num_batches = num_batches;
  view.num_heads = num_heads;
  view.device = device_of("indices", describe(indices).device);
  view.indices = index_data<std::int32_t>("indices", indices);
  view.num_indices = static_cast<std::int64_t>(indices.size());
  view.offsets = index_data<std::int64_t>("offsets", offsets);
  view.counts = index_data<std::int32_t>("counts", counts);
  if (counts) {
    const std::int64_t lists = view.num_lists();
    view.max_count = lists == 0 ? 0 : view.num_indices / lists;
  }
  view.bitmap_indices = index_data<std::int32_t>("bitmap_indices", bitmap_indices);
  view.bitmaps = index_data<std::uint32_t>("bitmaps", bitmaps);
  view.num_bitmaps = bitmaps ? static_cast<std::int64_t>(bitmaps->shape(0)) : 0;
  return mask;
}

Argument read_input(const Caller& caller, const char* name, const nb::object& array,
                    bool heads_first, bool copy_strided) {
  Argument input = caller.read(name, array);
  if (input.tensor.ndim != 4) {
    throw Error(ErrorKind::invalid_value, std::string(name) + ": expected 4 axes (" +
                                              (heads_first ? "bhsd" : "bshd") + "), got shape " +
                                              shape_text(input.tensor));
  }
  if (copy_strided && input.tensor.strides[3] != 1) {
    return caller.read(name, array.attr("contiguous")());
  }
  return input;
}

/// (B, S, H, D), whatever order the caller's axes are in.
TensorView bshd(const char* name, const Argument& array, bool heads_first) {
  TensorView view = array.view(name);
  if (heads_first && view.rank == 4) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.stride[1], view.stride[2]);
  }
  return view;
}

/// A new output for q and v, whose faults are the library's check to report.
Argument make_out(const Caller& caller, const Argument& q, const TensorView& v) {
  const std::int64_t* shape = q.tensor.shape;
  const std::int64_t value_dim = v.shape[3];
  if (shape[3] == value_dim && has_compact_strides(q.tensor)) {
    return caller.make_like("out");  // the cheaper call
  }
  return caller.make("out", to_string(v.dtype), shape[0], shape[1], shape[2], value_dim);
}

nb::object run(nb::object q_array, nb::object k_array, nb::object v_array, nb::object out_array,
               bool return_lse, bool return_weights, const BoundBlockMask* mask, bool causal,
               std::optional<std::int64_t> window_left, std::optional<std::int64_t> window_right,
               std::optional<float> scale, bool heads_first, const std::string& backend,
               bool copy_strided, nb::handle library, const Exchange* exchange,
               nb::handle export_array) {
  Caller caller{library, exchange, export_array, q_array};
  const Argument q = read_input(caller, "q", q_array, heads_first, copy_strided);
  caller.like = q.object;  // the copy, where one was made
  const Argument k = read_input(caller, "k", k_array, heads_first, copy_strided);
  const Argument v = read_input(caller, "v", v_array, heads_first, copy_strided);
  AttentionArgs args;
  args.q = bshd("q", q, heads_first);
  args.k = bshd("k", k, heads_first);
  args.v = bshd("v", v, heads_first);
  args.mask = mask != nullptr ? &mask->view : nullptr;
  args.causal = causal;
  args.window_left = window_left;
  args.window_right = window_right;
  args.scale = scale;
  args.backend = backend;

  const Argument out =
      out_array.is_none() ? make_out(caller, q, args.v) : caller.read("out", out_array);
  args.out = bshd("out", out, heads_first);
  const auto [batch, q_len, num_heads, head_dim] = args.q.shape;
  const std::int64_t kv_len = args.k.shape[1];
  Argument lse{nb::none(), {}, {}}, weights{nb::none(), {}, {}};
  Workspace workspace;
  if (return_lse) {
    lse = caller.make("lse", "float32", batch, num_heads, q_len);
    args.lse = lse.view("lse");
  }
  if (return_weights) {
    // Rows of a multiple of 16 bytes, which a GPU stores 16 bytes at a time.
    const std::int64_t padded = (kv_len + 7) / 8 * 8;
    weights = caller.make("weights", to_string(args.q.dtype), batch, num_heads, q_len, padded);
    args.weights = weights.view("weights");
    args.weights.shape[3] = kv_len;
  }

  const std::uintptr_t stream = caller.stream(args.q.device);
  args.stream = reinterpret_cast<void*>(stream);
  {
    nb::gil_scoped_release release;
    attention(args,
              [&](std::size_t bytes) { return caller.allocate(bytes, args.q.device, &workspace); });
  }
  caller.finish(args.q.device, stream);
  if (!return_lse && !return_weights) return out.object;
  return nb::make_tuple(out.object, lse.object, weights.object);
}

}  // namespace

void bind_attention(nb::module_& module) {
  nb::class_<BoundBlockMask>(module, "BlockMaskView",
                             "The arrays of a BlockMask as the native code reads them.")
      .def(
          "__init__",
          [](BoundBlockMask* self, std::int64_t q_len, std::int64_t kv_len, std::int64_t q_block,
             std::int64_t kv_block, std::int64_t num_batches, std::int64_t num_heads, Array indices,
             OptionalArray offsets, OptionalArray counts, OptionalArray bitmap_indices,
             OptionalArray bitmaps) {
            new (self)
                BoundBlockMask(make_mask(q_len, kv_len, q_block, kv_block, num_batches, num_heads,
                                         std::move(indices), std::move(offsets), std::move(counts),
                                         std::move(bitmap_indices), std::move(bitmaps)));
          },
          nb::kw_only(), "q_len"_a, "kv_len"_a, "q_block"_a, "kv_block"_a, "num_batches"_a,
          "num_heads"_a, "indices"_a, "offsets"_a.none(), "counts"_a.none(),
          "bitmap_indices"_a.none(), "bitmaps"_a.none());

  module.def("attention", &run, "q"_a, "k"_a, "v"_a, "out"_a.none(), "return_lse"_a,
             "return_weights"_a, "mask"_a.none(), "causal"_a, "window_left"_a.none(),
             "window_right"_a.none(), "scale"_a.none(), "heads_first"_a, "backend"_a,
             "copy_strided"_a, "library"_a, "exchange"_a.none(), "export_array"_a,
             "See sparsek.attention.");
}

}  // namespace sparsek::python
