#include "attention/problem.h"

#include <algorithm>
#include <cmath>

#include "core/checks.h"
#include "core/message.h"

namespace sparsek::attn {
namespace {

void check_outputs(const AttentionArgs& args) {
  const TensorView& q = args.q;
  check_tensor("out", args.out, 4);
  check_same_dtype("out", args.out, "q", q.dtype);
  check_same_device("out", args.out.device, "q", q.device);
  check_contiguous_last_axis("out", args.out);
  check_own_elements("out", args.out);
  check_extent("out", args.out, 0, "batch", q.shape[0], "q");
  check_extent("out", args.out, 1, "length", q.shape[1], "q");
  check_extent("out", args.out, 2, "number of heads", q.shape[2], "q");
  check_extent("out", args.out, 3, "value dim", args.v.shape[3], "v");
  if (args.lse.given()) {
    check_tensor("lse", args.lse, 3);
    require(args.lse.dtype == DType::float32, ErrorKind::invalid_type,
            "lse: expected dtype float32, got ", args.lse.dtype);
    check_same_device("lse", args.lse.device, "q", q.device);
    check_extent("lse", args.lse, 0, "batch", q.shape[0], "q");
    check_extent("lse", args.lse, 1, "number of heads", q.shape[2], "q");
    check_extent("lse", args.lse, 2, "q_len", q.shape[1], "q");
  }
  if (args.weights.given()) {
    check_tensor("weights", args.weights, 4);
    check_same_dtype("weights", args.weights, "q", q.dtype);
    check_same_device("weights", args.weights.device, "q", q.device);
    check_contiguous_last_axis("weights", args.weights);
    check_extent("weights", args.weights, 0, "batch", q.shape[0], "q");
    check_extent("weights", args.weights, 1, "number of heads", q.shape[2], "q");
    check_extent("weights", args.weights, 2, "q_len", q.shape[1], "q");
    check_extent("weights", args.weights, 3, "kv_len", args.k.shape[1], "k");
  }
}

void check_mask(const AttentionArgs& args) {
  const BlockMaskView& mask = *args.mask;
  const TensorView& q = args.q;
  check_same_device("mask", mask.device, "q", q.device);
  require_value(mask.q_block >= 1 && mask.kv_block >= 1,
                "mask: expected positive block lengths, got q_block ", mask.q_block,
                " and kv_block ", mask.kv_block);
  require_value(mask.q_len == q.shape[1] && mask.kv_len == args.k.shape[1],
                "mask: expected one made for q_len ", q.shape[1], " and kv_len ", args.k.shape[1],
                ", got q_len ", mask.q_len, " and kv_len ", mask.kv_len);
  require_value(mask.num_batches == 1 || mask.num_batches == q.shape[0],
                "mask: expected 1 batch or the ", q.shape[0], " of q, got ", mask.num_batches);
  require_value(
      mask.num_heads == 1 || mask.num_heads == q.shape[2] || mask.num_heads == args.k.shape[2],
      "mask: expected 1 head, the ", args.k.shape[2], " of k or the ", q.shape[2], " of q, got ",
      mask.num_heads);
  require_value((mask.offsets != nullptr) != (mask.counts != nullptr),
                "mask: expected either offsets (compressed lists) or counts (padded lists), got ",
                mask.offsets ? "both" : "neither");
  require_value(mask.indices != nullptr || mask.num_indices == 0,
                "mask: expected block indices, got null");
  require_value(mask.bitmap_indices == nullptr || mask.bitmaps != nullptr || mask.num_bitmaps == 0,
                "mask: expected bitmaps beside bitmap_indices, got null");
  if (mask.counts != nullptr) {
    require_value(mask.max_count >= 0 && mask.num_indices >= mask.num_lists() * mask.max_count,
                  "mask: expected ", mask.num_lists(), " lists of ", mask.max_count,
                  " entries, got ", mask.num_indices, " entries");
  }
}

}  // namespace

Problem make_problem(const AttentionArgs& args) {
  const TensorView &q = args.q, &k = args.k, &v = args.v;
  check_tensor("q", q, 4);
  check_tensor("k", k, 4);
  check_tensor("v", v, 4);
  check_same_dtype("k", k, "q", q.dtype);
  check_same_dtype("v", v, "q", q.dtype);
  check_same_device("k", k.device, "q", q.device);
  check_same_device("v", v.device, "q", q.device);
  check_contiguous_last_axis("q", q);
  check_contiguous_last_axis("k", k);
  check_contiguous_last_axis("v", v);
  check_extent("k", k, 0, "batch", q.shape[0], "q");
  check_extent("v", v, 0, "batch", q.shape[0], "q");
  check_extent("v", v, 1, "length", k.shape[1], "k");
  check_extent("v", v, 2, "number of heads", k.shape[2], "k");
  check_extent("k", k, 3, "head_dim", q.shape[3], "q");
  const auto heads_divide = [](std::int64_t heads, std::int64_t kv_heads) {
    return kv_heads == 0 ? heads == 0 : heads % kv_heads == 0;
  };
  require_value(heads_divide(q.shape[2], k.shape[2]),
                "q: expected a number of heads that is a multiple of k's ", k.shape[2], ", got ",
                q.shape[2]);
  require_value(q.shape[3] >= 1, "q: expected a head_dim of at least 1, got ", q.shape[3]);
  require_value(v.shape[3] >= 1, "v: expected a value dim of at least 1, got ", v.shape[3]);
  require_value(args.window_left.value_or(0) >= 0,
                "window: expected left >= 0 or unbounded, got left ", args.window_left.value_or(0));
  require_value(args.window_right.value_or(0) >= 0,
                "window: expected right >= 0 or unbounded, got right ",
                args.window_right.value_or(0));
  require_value(!args.scale || std::isfinite(*args.scale), "scale: expected a finite number, got ",
                args.scale.value_or(0.0f));
  check_outputs(args);
  if (args.mask != nullptr) check_mask(args);

  Problem problem;
  problem.batch = q.shape[0];
  problem.q_len = q.shape[1];
  problem.kv_len = k.shape[1];
  problem.num_q_heads = q.shape[2];
  problem.num_kv_heads = k.shape[2];
  problem.head_dim = q.shape[3];
  problem.value_dim = v.shape[3];
  problem.dtype = q.dtype;
  problem.device = device_info(q.device);
  problem.scale = args.scale.value_or(1.0f / std::sqrt(static_cast<float>(problem.head_dim)));
  problem.causal = args.causal;
  problem.window_left = args.window_left;
  problem.window_right = args.window_right;
  problem.band =
      make_band(problem.q_len, problem.kv_len, args.causal, args.window_left, args.window_right);
  if (args.mask != nullptr) {
    problem.has_mask = true;
    problem.q_block = args.mask->q_block;
    problem.kv_block = args.mask->kv_block;
    problem.listed_keys = args.mask->num_indices /
                          std::max<std::int64_t>(1, args.mask->num_lists()) * args.mask->kv_block;
    problem.lists_of_kv_heads =
        args.mask->num_heads == 1 || args.mask->num_heads == problem.num_kv_heads;
    problem.partial_blocks = args.mask->bitmap_indices != nullptr;
  }
  problem.wants_lse = args.lse.given();
  problem.wants_weights = args.weights.given();
  problem.q_alignment = row_alignment(q);
  problem.k_alignment = row_alignment(k);
  problem.v_alignment = row_alignment(v);
  problem.out_alignment = row_alignment(args.out);
  if (args.weights.given()) problem.weights_alignment = row_alignment(args.weights);
  return problem;
}

std::string to_string(const Problem& p) {
  const auto bound = [](std::optional<std::int64_t> value) {
    return value ? std::to_string(*value) : std::string("none");
  };
  std::string text = cat("batch=", p.batch, " q_len=", p.q_len, " kv_len=", p.kv_len,
                         " num_q_heads=", p.num_q_heads, " num_kv_heads=", p.num_kv_heads,
                         " head_dim=", p.head_dim, " value_dim=", p.value_dim, " dtype=", p.dtype,
                         " device=", p.device.device);
  if (p.causal) text += " causal";
  if (p.window_left || p.window_right) {
    text += cat(" window=(", bound(p.window_left), ", ", bound(p.window_right), ")");
  }
  if (p.has_mask) text += cat(" mask=", p.q_block, "x", p.kv_block);
  if (p.wants_lse) text += " lse";
  if (p.wants_weights) text += " weights";
  return text;
}

}  // namespace sparsek::attn
