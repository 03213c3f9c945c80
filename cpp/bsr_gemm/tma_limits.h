#pragma once

#include <algorithm>
#include <cstdint>

#include "bsr_gemm/problem.h"
#include "core/backend_table.h"

// What the kernels that load by TMA, those of sm90 and sm90_dense, take and what they do not.

namespace sparsek::bsr {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;  // coordinates are 32-bit

inline bool takes_block(const BlockShape& block) {
  const auto takes = [](std::int64_t extent) {
    return extent == 16 || extent == 32 || extent == 64 || extent == 128;
  };
  return takes(block.rows) && takes(block.cols);
}

inline Reason why_not_block(const char* name, const BlockShape& block) {
  if (takes_block(block)) return std::nullopt;
  return cat(name, " has blocks of ", block.rows, "x", block.cols,
             ", expected 16, 32, 64 or 128 each way");
}

inline Reason why_not_axis(const char* name, const Access& access) {
  if (access.axis < 0) return cat(name, " has no contiguous axis");
  return std::nullopt;
}

inline Reason why_not_alignment(const char* name, const Access& access) {
  if (access.alignment >= 16) return std::nullopt;
  return cat(name, " has an address or strides that are multiples of ", access.alignment,
             " bytes, expected 16 (TMA), and no negative strides");
}

inline Reason why_not_extents(const Problem& p) {
  const std::int64_t largest = std::max({p.m, p.n, p.k});
  if (largest < kMaxExtent) return std::nullopt;
  return cat("the largest of m, n, k is ", largest, ", expected less than ", kMaxExtent);
}

}  // namespace sparsek::bsr
