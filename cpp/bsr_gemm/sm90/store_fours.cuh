#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/params.h"
#include "bsr_gemm/sm90/staging.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::bsr::sm90 {

/// Four results of type T that lie beside each other in memory.
template <class T>
using FourOf = std::conditional_t<std::is_same_v<T, float>, float4, uint2>;

__device__ inline float4 unpack_four(float, const float4& four) { return four; }
template <class T>
__device__ float4 unpack_four(T, const uint2& four) {
  const auto& values = reinterpret_cast<const T(&)[4]>(four);
  return make_float4(static_cast<float>(values[0]), static_cast<float>(values[1]),
                     static_cast<float>(values[2]), static_cast<float>(values[3]));
}

__device__ inline float4 pack_four(float, const float4& four) { return four; }
template <class T>
__device__ uint2 pack_four(T, const float4& four) {
  return make_uint2(pack<T>(four.x, four.y), pack<T>(four.z, four.w));
}

/// Where four results that lie beside each other, along the rows or the columns, and those of c
/// begin, and how many there are.
struct FourPlace {
  std::int64_t out, c;
  std::int32_t count = 0;
};

/// Of c.
template <class T>
__device__ FourOf<T> get_four(const Result& r, const FourPlace& place) {
  const T* const from = static_cast<const T*>(r.c.data) + place.c;
  if (place.count == 4 && r.c_aligned) return *reinterpret_cast<const FourOf<T>*>(from);
  const std::int64_t step = r.rows_inner ? r.c.sparse_stride : r.c.dense_stride;
  FourOf<T> four{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < place.count) reinterpret_cast<T(&)[4]>(four)[i] = from[i * step];
  }
  return four;
}

template <class T>
__device__ void put_four(const Result& r, const FourPlace& place, const FourOf<T>& four) {
  T* const out = static_cast<T*>(r.out.data) + place.out;
  if (place.count == 4 && r.aligned) {
    *reinterpret_cast<FourOf<T>*>(out) = four;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < place.count) out[i] = reinterpret_cast<const T(&)[4]>(four)[i];
  }
}

/// In lines of kWidth floats, units of 16 bytes permuted against bank conflicts.
template <int kWidth>
__device__ float* staged(unsigned char* staging, int line, int element) {
  constexpr int kPermuted = kWidth / 4 < 8 ? kWidth / 4 - 1 : 7;
  return reinterpret_cast<float*>(staging) + line * kWidth +
         ((element / 4) ^ (line & kPermuted)) * 4 + element % 4;
}

/// Of a warp's 16 rows of 64 the kCols sums from kFirstCol on, times alpha, in the staging memory.
/// Lines are rows, kAcross: columns. `folded`: rows are as in_folded_order has them.
template <int kFirstCol, int kCols, bool kAcross, class Acc>
__device__ __forceinline__ void stage_sums(unsigned char* staging, float alpha, bool folded,
                                           const Acc& acc) {
  const int thread = opaque(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int own = warp * 16 + i * 8 + lane / 4, row = folded ? in_folded_order(own) : own;
#pragma unroll
    for (int j = 0; j < kCols / 8; ++j) {
      const int col = j * 8 + lane % 4 * 2, at = (kFirstCol / 8 + j) * 4 + i * 2;
      const float2 sums = make_float2(alpha * acc(at), alpha * acc(at + 1));
      if constexpr (kAcross) {
        *staged<64>(staging, col, row) = sums.x;
        *staged<64>(staging, col + 1, row) = sums.y;
      } else {
        *reinterpret_cast<float2*>(staged<kCols>(staging, row, col)) = sums;
      }
    }
  }
}

/// Those kCols from first_col on, with beta * c, as results of type T to where find(row, col) says.
/// c is asked for kBatch times at once: each answer takes as long as memory does.
template <class T, int kCols, bool kAcross, int kBatch, class Find>
__device__ __forceinline__ void put_staged(const Result& r, unsigned char* staging, int first_col,
                                           const Find& find) {
  constexpr int kWidth = kAcross ? 64 : kCols;
  static_assert(kCols * 16 / 128 % kBatch == 0);
#pragma unroll 1
  for (int first = opaque(threadIdx.x % 128); first < kCols * 16; first += 128 * kBatch) {
    const auto line_of = [&](int i) { return (first + i * 128) / (kWidth / 4); };
    const auto element_of = [&](int i) { return (first + i * 128) % (kWidth / 4) * 4; };
    FourPlace place[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      place[i] = find(kAcross ? element_of(i) : line_of(i),
                      first_col + (kAcross ? line_of(i) : element_of(i)));
    }
    FourOf<T> c[kBatch]{};
    if (r.beta != 0.0f) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) c[i] = get_four<T>(r, place[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float4 values =
          *reinterpret_cast<const float4*>(staged<kWidth>(staging, line_of(i), element_of(i)));
      if (r.beta != 0.0f) {
        const float4 added = unpack_four(T{}, c[i]);
        values = make_float4(values.x + r.beta * added.x, values.y + r.beta * added.y,
                             values.z + r.beta * added.z, values.w + r.beta * added.w);
      }
      put_four<T>(r, place[i], pack_four(T{}, values));
    }
  }
}

/// 64 x kCols sums of a warp group: alpha * sum + beta * c, kStagedCols at a time, which go through
/// the staging memory. All rounds share the instructions that put them where find(row, col) says,
/// kAtOnce fours of a thread at a time: a tile is stored once in a while, and instructions take
/// longer to fetch than to execute.
template <class Element, int kCols, int kStagedCols, int kAtOnce, bool kAcross, class Acc,
          class Find>
__device__ void store_by_fours(const Result& r, unsigned char* staging, bool folded,
                               std::int32_t num_cols, int barrier, const Acc& acc,
                               const Find& find) {
  constexpr int kOfThread = kStagedCols * 16 / 128;
  constexpr int kBatch = kOfThread < kAtOnce ? kOfThread : kAtOnce;
#pragma unroll 1
  for (int first_col = 0; first_col < min(kCols, num_cols); first_col += kStagedCols) {
    cutlass::arch::NamedBarrier::sync(128, barrier);  // the last round has been read
    cute::for_each(cute::make_seq<kCols / kStagedCols>{}, [&](auto round) {
      constexpr int kFirstCol = decltype(round)::value * kStagedCols;
      if (first_col == kFirstCol) {
        stage_sums<kFirstCol, kStagedCols, kAcross>(staging, r.alpha, folded, acc);
      }
    });
    cutlass::arch::NamedBarrier::sync(128, barrier);
    if (r.wide_out) {
      put_staged<float, kStagedCols, kAcross, kBatch>(r, staging, first_col, find);
    } else {
      put_staged<Element, kStagedCols, kAcross, kBatch>(r, staging, first_col, find);
    }
  }
}

/// The same, wherever the result is contiguous.
template <class Element, int kCols, int kStagedCols, int kAtOnce, class Acc, class Find>
__device__ void store_by_fours(const Result& r, unsigned char* staging, bool folded,
                               std::int32_t num_cols, int barrier, const Acc& acc,
                               const Find& find) {
  if (r.rows_inner) {
    store_by_fours<Element, kCols, kStagedCols, kAtOnce, true>(r, staging, folded, num_cols,
                                                               barrier, acc, find);
  } else {
    store_by_fours<Element, kCols, kStagedCols, kAtOnce, false>(r, staging, folded, num_cols,
                                                                barrier, acc, find);
  }
}

}  // namespace sparsek::bsr::sm90
