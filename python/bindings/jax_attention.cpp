#include <optional>
#include <string>
#include <utility>

#include "xla_call.h"

namespace sparsek::python::xla {
namespace {

std::optional<std::int64_t> bound(std::int64_t value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

BlockMaskView next_mask(Call& call) {
  BlockMaskView mask;
  mask.q_len = call.integer("mask_q_len");
  mask.kv_len = call.integer("mask_kv_len");
  mask.q_block = call.integer("q_block");
  mask.kv_block = call.integer("kv_block");
  mask.num_batches = call.integer("num_batches");
  mask.num_heads = call.integer("num_heads");
  mask.device = call.device();
  mask.indices = call.next_indices<std::int32_t>("indices", &mask.num_indices);
  if (call.flag("padded")) {
    mask.counts = call.next_indices<std::int32_t>("counts");
    const std::int64_t lists = mask.num_lists();
    mask.max_count = lists == 0 ? 0 : mask.num_indices / lists;
  } else {
    mask.offsets = call.next_indices<std::int64_t>("offsets");
  }
  if (call.flag("partial")) {
    mask.bitmap_indices = call.next_indices<std::int32_t>("bitmap_indices");
    std::int64_t words = 0;
    mask.bitmaps = call.next_indices<std::uint32_t>("bitmaps", &words);
    mask.num_bitmaps = words / (mask.q_block * ((mask.kv_block + 31) / 32));
  }
  return mask;
}

void attention_call(Call& call) {
  const bool heads_first = call.flag("heads_first");
  const auto bshd = [heads_first](TensorView view) {
    if (heads_first) {
      std::swap(view.shape[1], view.shape[2]);
      std::swap(view.stride[1], view.stride[2]);
    }
    return view;
  };
  AttentionArgs args;
  args.q = bshd(call.next_argument("q"));
  args.k = bshd(call.next_argument("k"));
  args.v = bshd(call.next_argument("v"));
  BlockMaskView mask;
  if (call.flag("masked")) {
    mask = next_mask(call);
    args.mask = &mask;
  }
  args.out = bshd(call.next_result("out"));
  if (call.flag("return_lse")) args.lse = call.next_result("lse");
  if (call.flag("return_weights")) {
    args.weights = call.next_result("weights");
    args.weights.shape[3] = args.k.shape[1];  // its rows are padded, see sparsek.jax
  }
  args.causal = call.flag("causal");
  args.window_left = bound(call.integer("window_left"));
  args.window_right = bound(call.integer("window_right"));
  args.scale = call.number("scale");
  const std::string backend = call.text("backend");
  args.backend = backend;
  args.stream = call.stream();
  attention(args, [&](std::size_t bytes) { return call.allocate(bytes); });
}

}  // namespace

Error* attention_cpu(CallFrame* frame) { return run(frame, Platform::cpu, attention_call); }
Error* attention_cuda(CallFrame* frame) { return run(frame, Platform::cuda, attention_call); }

}  // namespace sparsek::python::xla
