#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/params.h"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

__device__ inline std::uint32_t pack(cutlass::half_t, float x, float y) {
  const __half2 packed = __floats2half2_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(packed);
}
__device__ inline std::uint32_t pack(cutlass::bfloat16_t, float x, float y) {
  const __nv_bfloat162 packed = __floats2bfloat162_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(packed);
}

constexpr int kStagingBytes = 16384;  // of one warp group

/// Else the compiler computes what all rounds need before the first, in registers that it does not
/// have.
template <class T>
__device__ T opaque(T value) {
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("" : "+f"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
  return value;
}

/// The row that a warp group's row holds where blocks are folded (Params::folded), which takes it
/// back too.
__device__ constexpr int in_folded_order(int row) { return row ^ (row >> 3 & 1); }

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
  return make_uint2(pack(T{}, four.x, four.y), pack(T{}, four.z, four.w));
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

/// Where 16 bytes of a result of 16 bits lie: in lines of 128, permuted against bank conflicts, and
/// units from 8 on behind all 64 lines of those before.
__device__ inline int staged_unit(int line, int unit) {
  return unit / 8 * (64 * 128) + line * 128 + (unit % 8 ^ (line & 7)) * 16;
}

/// Of a warp's 16 rows of 64 the kCols sums from `first_col` on, times alpha, as results of 16 bits
/// in the staging memory. Lines are rows, kAcross: columns, those from 64 on in units from 8 on.
/// `row_in_store` is lane % 8, or another order of the eight rows.
template <class Element, int kCols, bool kAcross, class Acc>
__device__ __forceinline__ void stage_units(unsigned char* staging, float alpha, int row_in_store,
                                            int first_col, const Acc& acc) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  // Matrix i of a store: rows (i % 2) * 8 ..., columns (i / 2) * 8 ...
  const int row = warp * 16 + lane / 8 % 2 * 8, col_in_store = lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < kCols / 8; j += 2) {
    std::uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (first_col / 8 + j + i / 2) * 4 + i % 2 * 2;
      r[i] = pack(Element{}, alpha * acc(at), alpha * acc(at + 1));
    }
    const int col = j * 8 % 64 + col_in_store;
    const int line = (kAcross ? col : row) + row_in_store, unit = (kAcross ? row : col) / 8;
    ptx::store_matrices<kAcross>(shared_address(staging) + staged_unit(line, j / 8 * 8 + unit), r);
  }
}

/// Writes the 64 rows that one warp group has summed: alpha * sum + beta * c. The sums go through
/// shared memory, some columns at a time. `first_row` counts the rows as they lie in the groups,
/// which is not where they lie in the result; `own_row` is row_of_thread of it. Columns from
/// `end_col` on are left.
template <class C, class P = Params>
class Epilogue {
 public:
  using Element = typename C::Element;
  static constexpr int kRows = 64;
  // Whether rows are those of blocks, of which 16 at least are in the result, or none.
  static constexpr bool kBlockRows = C::kOneSparse || C::kBothSparse;

  /// The first row of the result that this thread stores, read from memory.
  static __device__ std::int32_t row_of_thread(const P& p, std::int32_t first_row) {
    const int thread = threadIdx.x % 128;
    return row_of(p, first_row + (p.result.rows_inner ? thread % 8 * 8 : thread / 32 * 16));
  }

  /// Has L2 read what the tile adds of c, which is asked for when the tile has been multiplied.
  static __device__ void ask_for_c(const P& p, std::int32_t first_row, std::int32_t first_col,
                                   std::int32_t end_col) {
    const Result& r = p.result;
    if (r.beta == 0.0f || !r.c_aligned) return;
    const int in_line = r.wide_out ? 32 : 64;  // of 128 bytes
    const int step = r.rows_inner ? min(in_line, 1 << p.log2_block_rows) : in_line;
    const int steps = (r.rows_inner ? kRows : C::kTileCols) / step;
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < kRows * C::kTileCols / step; i += 128) {
      const int inner = i % steps * step, outer = i / steps;
      const std::int32_t row = row_of(p, first_row + (r.rows_inner ? inner : outer));
      const std::int32_t col = first_col + (r.rows_inner ? outer : inner);
      if (row >= p.rows || col >= end_col) continue;
      ptx::prefetch_to_l2(static_cast<const unsigned char*>(r.c.data) +
                          (row * r.c.sparse_stride + col * r.c.dense_stride) *
                              (r.wide_out ? sizeof(float) : sizeof(Element)));
    }
  }

  template <class Acc>
  static __device__ void run(const P& p, unsigned char* staging, std::int32_t first_row,
                             std::int32_t own_row, std::int32_t first_col, std::int32_t end_col,
                             int barrier, const Acc& acc) {
    const bool in_units =
        p.result.aligned && (p.result.rows_inner ? kBlockRows || p.rows % 8 == 0 : p.cols % 8 == 0);
    if (!in_units || p.result.wide_out || p.result.beta != 0.0f) {
      store(p, staging, first_row, first_col, end_col, barrier, acc);
    } else if (p.result.rows_inner) {
      store_units<true>(p, staging, own_row, first_col, end_col, barrier, acc);
    } else {
      store_units<false>(p, staging, own_row, first_col, end_col, barrier, acc);
    }
  }

 private:
  static __device__ bool folded(const P& p) {
    if constexpr (C::kOneSparse) return C::kMayFold && p.folded;
    return false;
  }

  static __device__ std::int32_t row_of(const P& p, std::int32_t row) {
    if constexpr (C::kOneSparse) {
      if (p.lists.rows == nullptr) return row;
      const std::int32_t block = __ldg(p.lists.rows + (row >> p.log2_block_rows));
      return (block << p.log2_block_rows) + (row & ((1 << p.log2_block_rows) - 1));
    } else {
      return row;
    }
  }

  /// Results of 16 bits, in units of 16 bytes as far as the result goes. kAcross: the rows are
  /// contiguous in the result, so its lines are columns, and every warp needs what the others have.
  /// Not by TMA: its stores would queue behind the loads of the next tile.
  template <bool kAcross, class Acc>
  static __device__ void store_units(const P& p, unsigned char* staging, std::int32_t own_row,
                                     std::int32_t first_col, std::int32_t end_col, int barrier,
                                     const Acc& acc) {
    constexpr int kCols = C::kTileCols < 128 ? C::kTileCols : 128;  // in one round
    const auto sync = [&] {
      if constexpr (kAcross) {
        cutlass::arch::NamedBarrier::sync(128, barrier);
      } else {
        __syncwarp();
      }
    };
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int row_in_store = folded(p) && !kAcross ? in_folded_order(lane % 16) % 8 : lane % 8;
    // Across: a thread takes a unit of every 16th column. Else: of every second row of its warp.
    const int line0 = kAcross ? thread / 8 : warp * 16 + lane / 16;
    const int unit0 = kAcross ? thread % 8 : lane % 16;
    const std::int64_t line_stride =
        kAcross ? p.result.out.dense_stride : p.result.out.sparse_stride;
    // The rows of a warp, or of a unit, lie in one block row: beside each other in the result, or
    // all of them beyond it, unless they are not those of blocks.
    const std::int32_t num_cols = own_row < p.rows ? end_col - first_col : 0;
    Element* out = static_cast<Element*>(p.result.out.data) + own_row * p.result.out.sparse_stride +
                   first_col * p.result.out.dense_stride +
                   (kAcross ? line0 * line_stride : lane / 16 * line_stride + unit0 * 8);
#pragma unroll
    for (int round = 0; round < C::kTileCols / kCols; ++round) {
      sync();  // the last round has been read
      const float alpha = opaque(p.result.alpha);
      stage_units<Element, kCols, kAcross>(staging, alpha, row_in_store, round * kCols, acc);
      sync();
      if constexpr (kAcross) {
#pragma unroll 4
        for (int line = 0; line < kCols; line += 16) {
          const int l = line + line0;
          if (round * kCols + l >= num_cols) continue;
          auto rows =
              *reinterpret_cast<const uint4*>(staging + staged_unit(l % 64, l / 64 * 8 + unit0));
          if (folded(p) && unit0 % 2 == 1) swap_pairs(rows);
          *reinterpret_cast<uint4*>(out + (round * kCols + line) * line_stride) = rows;
        }
      } else if (unit0 * 8 < kCols && round * kCols + unit0 * 8 < num_cols) {
#pragma unroll 4
        for (int line = 0; line < 16; line += 2) {
          if (!kBlockRows && own_row + lane / 16 + line >= p.rows) break;
          *reinterpret_cast<uint4*>(out + round * kCols + line * line_stride) =
              *reinterpret_cast<const uint4*>(staging + staged_unit(line0 + line, unit0));
        }
      }
    }
  }

  /// in_folded_order, of the second eight rows.
  static __device__ void swap_pairs(uint4& rows) {
    for (std::uint32_t* const word : {&rows.x, &rows.y, &rows.z, &rows.w}) {
      *word = __byte_perm(*word, 0, 0x1032);
    }
  }

  /// Any result, in float32.
  template <class Acc>
  static __device__ void store(const P& p, unsigned char* staging, std::int32_t first_row,
                               std::int32_t first_col, std::int32_t end_col, int barrier,
                               const Acc& acc) {
    const Result& r = p.result;
    store_by_fours<Element, C::kTileCols, C::kStagedCols, C::kFoursAtOnce>(
        r, staging, folded(p), end_col - first_col, barrier, acc,
        [&](std::int32_t row, std::int32_t col) -> FourPlace {
          row = row_of(p, first_row + row);
          col += first_col;
          if (row >= p.rows || col >= end_col) return {};
          return {row * r.out.sparse_stride + col * r.out.dense_stride,
                  row * r.c.sparse_stride + col * r.c.dense_stride,
                  min(4, r.rows_inner ? p.rows - row : end_col - col)};
        });
  }
};

}  // namespace sparsek::bsr::sm90
