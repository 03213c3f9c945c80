#pragma once

#include <algorithm>
#include <optional>

#include "attention/problem.h"
#include "core/integers.h"

namespace sparsek::attn {

// Decoding, one query: the query heads of a kv head become the queries of one head, so that one
// tile reads K and V for all of them, and causal and window become the range of keys that the
// query sees. With block lists only where one serves all of them and the query sees all keys, for a
// list counts its blocks from the first one, and without bitmaps, whose rows are queries.

inline bool packs_gqa(const Problem& p) {
  if (p.q_len != 1 || p.num_q_heads == p.num_kv_heads || p.wants_weights) return false;
  return !p.has_mask || (p.lists_of_kv_heads && !p.partial_blocks && is_unbounded(p.band, p.q_len));
}

/// The problem that a fused kernel computes in place of `p`, made in `memory`; often `p` itself,
/// which is not copied.
inline const Problem& pack_gqa(const Problem& p, std::optional<Problem>* memory) {
  if (!packs_gqa(p)) return p;
  Problem& packed = memory->emplace(p);
  packed.q_len = p.num_q_heads / p.num_kv_heads;
  packed.num_q_heads = p.num_kv_heads;
  packed.kv_len = std::max<std::int64_t>(p.band.end(0) - p.band.begin(0), 0);
  packed.causal = false;
  packed.window_left = packed.window_right = std::nullopt;
  packed.band = make_band(packed.q_len, packed.kv_len, false, std::nullopt, std::nullopt);
  if (p.has_mask) packed.q_block = ceil_div(packed.q_len, p.q_block) * p.q_block;  // one list still
  return packed;
}

/// The arguments of that problem, `p` being the one of `args`.
inline AttentionArgs pack_gqa(const Problem& p, const Problem& packed, const AttentionArgs& args) {
  AttentionArgs result = args;
  if (!packs_gqa(p)) return result;
  const auto split_heads = [&](TensorView* tensor, int query_axis, int head_axis) {
    tensor->shape[query_axis] = packed.q_len;
    tensor->shape[head_axis] = packed.num_q_heads;
    tensor->stride[query_axis] = tensor->stride[head_axis];
    tensor->stride[head_axis] *= packed.q_len;
  };
  split_heads(&result.q, 1, 2);
  split_heads(&result.out, 1, 2);
  if (args.lse.given()) split_heads(&result.lse, 2, 1);
  for (TensorView* tensor : {&result.k, &result.v}) {
    tensor->data =
        static_cast<char*>(tensor->data) +
        p.band.begin(0) * tensor->stride[1] * static_cast<std::int64_t>(size_of(tensor->dtype));
    tensor->shape[1] = packed.kv_len;
  }
  return result;
}

}  // namespace sparsek::attn
