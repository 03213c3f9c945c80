#pragma once

#include <cutlass/numeric_conversion.h>

#include <cstdint>
#include <cute/config.hpp>

#include "attention/output.h"
#include "primitives/ptx.cuh"
#include "primitives/quad.cuh"

namespace sparsek::attn {

// Accumulators of warp-level and warpgroup-level MMA alike: element 4 * j + 2 * r + c is in column
// 8 * j + 2 * (lane % 4) + c of a thread's row r.

/// Writes a row, of which a quad holds 2 values of each 8 columns: 16 bytes from each lane. All
/// words of up to 128 columns change lanes before the first is written, lest each store waits for
/// the shuffles before it.
template <class Element, int kValueDim, int r, class Accumulator>
__device__ __forceinline__ void store_row(const Accumulator& output, float factor, Element* out,
                                          std::int32_t columns) {
  constexpr int kColumns = kValueDim % 128 == 0 ? 128 : kValueDim % 96 == 0 ? 96 : 64;
  static_assert(kValueDim % kColumns == 0);
  const int lane_column = threadIdx.x % 4 * 8;
  cutlass::NumericArrayConverter<Element, float, 2> convert;
  CUTE_UNROLL
  for (int begin = 0; begin < kValueDim; begin += kColumns) {
    std::uint32_t word[kColumns / 32][4];
    CUTE_UNROLL
    for (int j = 0; j < kColumns / 32; ++j) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = begin / 2 + 16 * j + 4 * i + 2 * r;
        const auto pair = convert({output(at) * factor, output(at + 1) * factor});
        word[j][i] = reinterpret_cast<const std::uint32_t&>(pair);
      }
      transpose_quad(word[j]);
    }
    CUTE_UNROLL
    for (int j = 0; j < kColumns / 32; ++j) {
      const int column = begin + 32 * j + lane_column;
      ptx::store_if(column < columns, out + column, word[j]);
    }
  }
}

/// The same for rows that are not made of aligned 16 bytes.
template <class Element, int kValueDim, int r, class Accumulator>
__device__ __forceinline__ void store_row_by_element(const Accumulator& output, float factor,
                                                     Element* out, std::int32_t columns) {
  CUTE_UNROLL
  for (int i = 0; i < kValueDim / 4; ++i) {
    const int column = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (column < columns)
      out[column] = static_cast<Element>(output(i / 2 * 4 + 2 * r + i % 2) * factor);
  }
}

/// The same in float32.
template <int kValueDim, int r, class Accumulator>
__device__ __forceinline__ void store_float_row(const Accumulator& output, float factor, float* out,
                                                std::int32_t columns) {
  CUTE_UNROLL
  for (int i = 0; i < kValueDim / 8; ++i) {
    const int column = 8 * i + threadIdx.x % 4 * 2;
    if (column < columns) {
      *reinterpret_cast<float2*>(out + column) =
          make_float2(output(4 * i + 2 * r) * factor, output(4 * i + 2 * r + 1) * factor);
    }
  }
}

/// Row r of a thread's two, `tile_row` and the 8th after it: O and lse. From query `end` on, the
/// thread only takes part. (r is known at compile time: a loop that is not unrolled would move the
/// accumulator to local memory. `work` and `softmax` are asked late: their answers would spill.)
///   kMayBeFloat  the output may be float32
template <class Element, int kValueDim, int r, bool kMayBeFloat = false, class Work,
          class Accumulator, class Softmax>
__device__ __forceinline__ void write_row(const Output& output, const Lse& lse, const Work& work,
                                          int tile_row, std::int32_t end, const Accumulator& values,
                                          const Softmax& softmax) {
  const std::int64_t query = work.q_begin + tile_row + 8 * r;
  const bool inside = query < end;
  const std::int32_t columns = inside ? output.value_dim : 0;
  if (kMayBeFloat && output.float32) {
    auto* out = row_of<float>(output, work.batch, work.head, query);
    store_float_row<kValueDim, r>(values, softmax.inverse_sum(r), out, columns);
  } else {
    auto* out = row_of<Element>(output, work.batch, work.head, query);
    if (output.vectors) {
      store_row<Element, kValueDim, r>(values, softmax.inverse_sum(r), out, columns);
    } else {
      store_row_by_element<Element, kValueDim, r>(values, softmax.inverse_sum(r), out, columns);
    }
  }
  if (lse.data != nullptr && inside && threadIdx.x % 4 == 0) {
    *row_of<float>(lse, work.batch, work.head, query) = softmax.lse(r);
  }
}

}  // namespace sparsek::attn
