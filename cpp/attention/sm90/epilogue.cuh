#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"

namespace sparsek::attn::sm90 {

/// Transposes four words over the four lanes of a quad: lane i's word j becomes lane j's word i.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&word)[4]) {
  const int lane = threadIdx.x % 4;
  CUTE_UNROLL
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
    CUTE_UNROLL
    for (int low = 0; low < 4; ++low) {
      if (low & bit) continue;
      const std::uint32_t sent = upper ? word[low] : word[low + bit];
      const std::uint32_t received = __shfl_xor_sync(~0u, sent, bit);
      if (upper) {
        word[low] = received;
      } else {
        word[low + bit] = received;
      }
    }
  }
}

/// Writes a row, of which a quad holds 2 values of each 8 columns: 16 bytes from each lane.
template <class Element, class C, int r, class Accumulator>
__device__ __forceinline__ void store_row(const Accumulator& output, float factor, Element* out,
                                          std::int32_t columns) {
  const int lane = threadIdx.x % 4;
  cutlass::NumericArrayConverter<Element, float, 2> convert;
  CUTE_UNROLL
  for (int column = 0; column < C::kValueDim; column += 32) {
    std::uint32_t word[4];
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = column / 2 + 4 * i + 2 * r;
      const auto pair = convert({output(at) * factor, output(at + 1) * factor});
      word[i] = reinterpret_cast<const std::uint32_t&>(pair);
    }
    transpose_quad(word);
    const int first = column + 8 * lane;
    if (first < columns) {
      *reinterpret_cast<uint4*>(out + first) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

/// The same for rows that are not made of aligned 16 bytes.
template <class Element, class C, int r, class Accumulator>
__device__ __forceinline__ void store_row_by_element(const Accumulator& output, float factor,
                                                     Element* out, std::int32_t columns) {
  CUTE_UNROLL
  for (int i = 0; i < C::kValueDim / 4; ++i) {
    const int column = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (column < columns)
      out[column] = static_cast<Element>(output(i / 2 * 4 + 2 * r + i % 2) * factor);
  }
}

/// Row r of a thread's two. (Known at compile time: a loop that is not unrolled would move the
/// fragment to local memory.)
template <class Element, class C, int r, class Accumulator>
__device__ __forceinline__ void finish_row(const Params& params, const Work& work, int tile_row,
                                           const Accumulator& output, const RowSoftmax& softmax) {
  const std::int64_t query = work.q_begin + tile_row + 8 * r;
  const bool inside = query < params.q_len;
  const std::int32_t columns = inside ? params.out.value_dim : 0;
  auto* out = static_cast<Element*>(params.out.data) + work.batch * params.out.batch_stride +
              work.head * params.out.head_stride + query * params.out.row_stride;
  if (params.out.vectors) {
    store_row<Element, C, r>(output, softmax.inverse_sum(r), out, columns);
  } else {
    store_row_by_element<Element, C, r>(output, softmax.inverse_sum(r), out, columns);
  }
  if (params.lse.data != nullptr && inside && threadIdx.x % 4 == 0) {
    params.lse.data[work.batch * params.lse.batch_stride + work.head * params.lse.head_stride +
                    query * params.lse.row_stride] = softmax.lse(r);
  }
}

/// Divides by the rows' sums and writes O and lse.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store(const Params& params, const Work& work, int tile_row,
                                      const Accumulator& output, const RowSoftmax& softmax) {
  finish_row<Element, C, 0>(params, work, tile_row, output, softmax);
  finish_row<Element, C, 1>(params, work, tile_row, output, softmax);
}

}  // namespace sparsek::attn::sm90
