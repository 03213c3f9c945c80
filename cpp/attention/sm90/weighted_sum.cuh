#pragma once

#include <cstdint>

#include "attention/output.h"
#include "core/integers.h"

namespace sparsek::attn::sm90 {

// The sum of what CTAs computed of a row, each from a part of its keys, weighed by their lse. Parts
// are float32: one rounding less. What it takes is waiting: a thread asks for all that it reads at
// once.

constexpr int kSumThreads = 128;  // of a CTA
constexpr int kSumLanes = 8;      // of 8 columns each
constexpr int kSumColumns = 8 * kSumLanes;

/// Where parts are many and rows are few, four groups of lanes have the parts of a row in turns,
/// and a CTA fewer rows.
constexpr int groups_of(bool many_parts) { return many_parts ? 4 : 1; }
constexpr int rows_of_cta(bool many_parts) {
  return kSumThreads / kSumLanes / groups_of(many_parts);
}

struct RowParts {
  const float* out;  // rows of parts are aligned to 32 bytes
  std::int64_t out_stride;
  const float* lse;
  std::int64_t lse_stride;
  std::int32_t count;
};

/// Of a part's row.
inline std::int64_t row_stride_of_parts(std::int64_t value_dim) {
  return ceil_div(value_dim, std::int64_t{8}) * 8;
}

inline unsigned slices_of_sum(std::int64_t value_dim) {
  return static_cast<unsigned>(ceil_div(value_dim, std::int64_t{kSumColumns}));
}

/// More CTAs than that find no place at once, and each lane should have parts to ask for.
inline bool has_many_parts(int parts, std::int64_t rows, std::int64_t value_dim) {
  constexpr int kFewParts = 4, kMostCtas = 512;
  return parts > kFewParts && rows * slices_of_sum(value_dim) <= kMostCtas * rows_of_cta(true);
}

/// Of the CTA's rows, this thread's.
template <bool kManyParts>
__device__ __forceinline__ int sum_row() {
  return static_cast<int>(threadIdx.x) / (kSumLanes * groups_of(kManyParts));
}

/// The first of its columns; blockIdx.y counts slices of a row.
__device__ __forceinline__ int sum_column() {
  return static_cast<int>(blockIdx.y) * kSumColumns + static_cast<int>(threadIdx.x) % kSumLanes * 8;
}

template <class Element>
struct alignas(16) Eight {
  Element values[8];
};

/// A thread's columns of the sum.
struct SumOfParts {
  float max = -INFINITY;  // of the parts' lses
  float sum = 0;          // of their weights
  float columns[8] = {};

  __device__ __forceinline__ void rescale(float to) {
    const float factor = max == to ? 1.0f : __expf(max - to);
    max = to;
    sum *= factor;
#pragma unroll
    for (float& column : columns) column *= factor;
  }

  __device__ __forceinline__ void add(float lse, const Eight<float>& values) {
    const float weight = lse == -INFINITY ? 0.0f : __expf(lse - max);
    sum += weight;
#pragma unroll
    for (int i = 0; i < 8; ++i) columns[i] += weight * values.values[i];
  }

  /// With what the other groups of a warp have.
  __device__ __forceinline__ void merge() {
#pragma unroll
    for (int lanes = kSumLanes; lanes < 32; lanes *= 2) {
      rescale(fmaxf(max, __shfl_xor_sync(~0u, max, lanes)));
      sum += __shfl_xor_sync(~0u, sum, lanes);
#pragma unroll
      for (float& column : columns) column += __shfl_xor_sync(~0u, column, lanes);
    }
  }

  __device__ __forceinline__ float inverse() const {
    return sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
  }
};

/// This thread's columns, by whole warps: a thread without a row has no parts.
template <bool kManyParts>
__device__ __forceinline__ SumOfParts sum_of(const RowParts& parts, std::int32_t value_dim) {
  constexpr int kGroups = groups_of(kManyParts), kAtOnce = kManyParts ? 8 : 4;
  const int group = static_cast<int>(threadIdx.x) / kSumLanes % kGroups;
  const float* out = parts.out + (sum_column() < value_dim ? sum_column() : 0);
  SumOfParts total;
  for (int first = group; first < parts.count; first += kGroups * kAtOnce) {
    float lse[kAtOnce];
    Eight<float> values[kAtOnce];
    float most = total.max;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = first + i * kGroups;
      lse[i] = -INFINITY;
      values[i] = {};
      if (part < parts.count) {
        lse[i] = parts.lse[part * parts.lse_stride];
        values[i] = *reinterpret_cast<const Eight<float>*>(out + part * parts.out_stride);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) most = fmaxf(most, lse[i]);
    total.rescale(most);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) total.add(lse[i], values[i]);
  }
  if constexpr (kManyParts) total.merge();
  return total;
}

/// Writes this thread's columns of a row, and the lse if that has a place.
template <bool kManyParts, class Element>
__device__ __forceinline__ void store_sum(const SumOfParts& total, const Output& to, Element* out,
                                          float* lse) {
  if (static_cast<int>(threadIdx.x) / kSumLanes % groups_of(kManyParts) != 0) return;
  const int column = sum_column();
  if (lse != nullptr && column == 0) {
    *lse = total.sum == 0.0f ? -INFINITY : total.max + logf(total.sum);
  }
  const float inverse = total.inverse();
  Eight<Element> values;
#pragma unroll
  for (int i = 0; i < 8; ++i) values.values[i] = static_cast<Element>(total.columns[i] * inverse);
  if (to.vectors) {
    if (column < to.value_dim) *reinterpret_cast<Eight<Element>*>(out + column) = values;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (column + i < to.value_dim) out[column + i] = values.values[i];
  }
}

}  // namespace sparsek::attn::sm90
