#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arrays.h"

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
  view.device = device_of("indices", indices);
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

/// (B, S, H, D), whatever order the caller's axes are in.
TensorView bshd(const char* name, const OptionalArray& array, bool heads_first) {
  TensorView view = view_of(name, array);
  if (heads_first && view.rank == 4) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.stride[1], view.stride[2]);
  }
  return view;
}

void run(Array q, Array k, Array v, Array out, OptionalArray lse, OptionalArray weights,
         const BoundBlockMask* mask, bool causal, std::optional<std::int64_t> window_left,
         std::optional<std::int64_t> window_right, std::optional<float> scale, bool heads_first,
         const std::string& backend, std::uintptr_t stream, nb::callable allocate) {
  AttentionArgs args;
  args.q = bshd("q", q, heads_first);
  args.k = bshd("k", k, heads_first);
  args.v = bshd("v", v, heads_first);
  args.out = bshd("out", out, heads_first);
  args.lse = view_of("lse", lse);
  args.weights = view_of("weights", weights);
  // The caller pads the rows of its weights to 16 bytes.
  if (args.weights.rank == 4) args.weights.shape[3] = args.k.shape[1];
  args.mask = mask != nullptr ? &mask->view : nullptr;
  args.causal = causal;
  args.window_left = window_left;
  args.window_right = window_right;
  args.scale = scale;
  args.backend = backend;
  args.stream = reinterpret_cast<void*>(stream);

  OptionalArray workspace;
  args.workspace_bytes = attention_workspace_bytes(args);
  if (args.workspace_bytes > 0) {
    workspace = nb::cast<Array>(allocate(args.workspace_bytes));
    args.workspace = const_cast<void*>(workspace->data());
  }
  nb::gil_scoped_release release;
  attention(args);
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

  module.def("attention", &run, nb::kw_only(), "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a.none(),
             "weights"_a.none(), "mask"_a.none(), "causal"_a, "window_left"_a.none(),
             "window_right"_a.none(), "scale"_a.none(), "heads_first"_a, "backend"_a, "stream"_a,
             "allocate"_a, "See sparsek.attention. allocate(bytes) returns the workspace.");
}

}  // namespace sparsek::python
