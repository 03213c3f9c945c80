#pragma once

#include <cstdlib>

#include "attention/input.h"
#include "attention/output.h"
#include "attention/problem.h"
#include "core/backend_table.h"
#include "core/checks.h"

// What the fused kernels of sm90 and wmma have in common on the host.

namespace sparsek::attn {

constexpr std::int64_t kMaxFusedHeadDim = 256;
// Sums of two positions stay in 32 bits.
constexpr std::int64_t kMaxFusedLength = std::int64_t{1} << 29;

/// Why no fused kernel takes the problem, if so; lengths apart.
inline Reason why_not_fused(const Problem& p) {
  if (p.head_dim > kMaxFusedHeadDim) {
    return cat("head_dim is ", p.head_dim, ", expected at most ", kMaxFusedHeadDim);
  }
  if (p.value_dim > kMaxFusedHeadDim) {
    return cat("value_dim is ", p.value_dim, ", expected at most ", kMaxFusedHeadDim);
  }
  return std::nullopt;
}

inline Reason why_not_length(const Problem& p) {
  if (p.q_len > kMaxFusedLength || p.kv_len > kMaxFusedLength) {
    return cat("lengths are ", p.q_len, " and ", p.kv_len, ", expected at most ", kMaxFusedLength);
  }
  return std::nullopt;
}

/// Whether the band shows some queries more keys than others.
inline bool is_unequal(const Problem& p) {
  const std::int64_t first = p.band.end(0) - p.band.begin(0);
  const std::int64_t last = p.band.end(p.q_len - 1) - p.band.begin(p.q_len - 1);
  return last > 2 * first;
}

/// The lists as the problem has them, whose q blocks are those of packed heads.
inline BlockMaskView mask_of(const Problem& p, const AttentionArgs& args) {
  if (!p.has_mask) return {};
  BlockMaskView mask = *args.mask;
  mask.q_block = p.q_block;
  return mask;
}

/// A (B, S, H, D) tensor without TMA.
inline Input input_of(const char* name, const TensorView& tensor, int alignment) {
  // The stride of an axis with one element is never used, and may be anything.
  const std::int64_t row_stride = tensor.shape[1] > 1 ? tensor.stride[1] : 0;
  require(std::abs(row_stride) < std::int64_t{1} << 30, ErrorKind::unsupported, "attention: ", name,
          " has rows that are ", row_stride, " elements apart, expected less than 2^30");
  return {tensor.data,
          tensor.stride[0],
          tensor.stride[2],
          static_cast<std::int32_t>(2 * row_stride),
          static_cast<std::int32_t>(tensor.shape[3]),
          alignment >= 16};
}

inline Output output_of(const Problem& p, const AttentionArgs& args) {
  return {args.out.data,
          args.out.stride[0],
          args.out.stride[2],
          args.out.stride[1],
          static_cast<std::int32_t>(p.value_dim),
          p.out_alignment >= 16 && p.value_dim % 8 == 0};
}

inline Lse lse_of(const AttentionArgs& args) {
  if (!args.lse.given()) return {};
  return {static_cast<float*>(args.lse.data), args.lse.stride[0], args.lse.stride[1],
          args.lse.stride[2]};
}

}  // namespace sparsek::attn
