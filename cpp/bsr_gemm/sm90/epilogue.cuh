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

/// Lines of `width` floats, units of 16 bytes permuted against bank conflicts.
__device__ inline float* staged(unsigned char* staging, int width, int line, int element) {
  return reinterpret_cast<float*>(staging) + line * width +
         ((element / 4) ^ (line & min(7, width / 4 - 1))) * 4 + element % 4;
}

/// 64 x kCols sums of a warp group, times alpha: put(row, col, values) gets four that lie beside
/// each other, along the rows or the columns. `folded`: rows are as in_folded_order has them.
/// kStagedCols at a time go through the staging memory.
template <int kCols, int kStagedCols, class Acc, class Put>
__device__ void store_by_fours(unsigned char* staging, float alpha, bool rows_inner, bool folded,
                               std::int32_t num_cols, int barrier, const Acc& acc, const Put& put) {
  const int width = kStagedCols == 64 || rows_inner ? 64 : kStagedCols;
#pragma unroll
  for (int round = 0; round < kCols / kStagedCols; ++round) {
    if (round * kStagedCols >= num_cols) break;
    cutlass::arch::NamedBarrier::sync(128, barrier);  // the last round has been read
    const float factor = opaque(alpha);
    const int thread = opaque(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int j = 0; j < kStagedCols / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int own = warp * 16 + i / 2 * 8 + lane / 4;
        const int row = folded ? in_folded_order(own) : own, col = j * 8 + lane % 4 * 2 + i % 2;
        *staged(staging, width, rows_inner ? col : row, rows_inner ? row : col) =
            factor * acc((round * (kStagedCols / 8) + j) * 4 + i);
      }
    }
    cutlass::arch::NamedBarrier::sync(128, barrier);
#pragma unroll 1
    for (int i = thread; i < kStagedCols * 16; i += 128) {
      const int line = i / (width / 4), element = i % (width / 4) * 4;
      float values[4];
      reinterpret_cast<float4&>(values) =
          *reinterpret_cast<const float4*>(staged(staging, width, line, element));
      put(rows_inner ? element : line, round * kStagedCols + (rows_inner ? line : element), values);
    }
  }
}

/// values + beta * c to the first `count` of 4 elements of the result that lie beside each other,
/// at an offset; `c_at` and `c_step` are those of c.
template <class Element>
__device__ void put_four(const Result& result, std::int64_t at, std::int64_t c_at,
                         std::int64_t c_step, std::int32_t count, float (&values)[4]) {
  if (result.beta != 0.0f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= count) continue;
      const std::int64_t from = c_at + i * c_step;
      values[i] +=
          result.beta *
          (result.wide_out ? static_cast<const float*>(result.c.data)[from]
                           : static_cast<float>(static_cast<const Element*>(result.c.data)[from]));
    }
  }
  if (result.wide_out) {
    float* out = static_cast<float*>(result.out.data) + at;
    if (count == 4 && result.aligned) {
      *reinterpret_cast<float4*>(out) = reinterpret_cast<const float4&>(values);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) out[i] = values[i];
    }
    return;
  }
  Element* out = static_cast<Element*>(result.out.data) + at;
  if (count == 4 && result.aligned) {
    *reinterpret_cast<uint2*>(out) =
        make_uint2(pack(Element{}, values[0], values[1]), pack(Element{}, values[2], values[3]));
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) out[i] = static_cast<Element>(values[i]);
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

  /// Where 16 bytes of a line of 128 lie: permuted against bank conflicts.
  static __device__ int unit_offset(int line, int unit) {
    return line * 128 + (unit ^ (line & 7)) * 16;
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
    // Matrix i of a store: rows (i % 2) * 8 ..., columns (i / 2) * 8 ...
    const int row = warp * 16 + lane / 8 % 2 * 8, col_in_store = lane / 16 * 8;
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
#pragma unroll
      for (int j = 0; j < kCols / 8; j += 2) {
        std::uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (round * (kCols / 8) + j + i / 2) * 4 + i % 2 * 2;
          r[i] = pack(Element{}, alpha * acc(at), alpha * acc(at + 1));
        }
        const int col = j * 8 % 64 + col_in_store;
        const int line = (kAcross ? col : row) + row_in_store, unit = (kAcross ? row : col) / 8;
        ptx::store_matrices<kAcross>(
            shared_address(staging) + j * 8 / 64 * (kRows * 128) + unit_offset(line, unit), r);
      }
      sync();
      if constexpr (kAcross) {
#pragma unroll 4
        for (int line = 0; line < kCols; line += 16) {
          const int l = line + line0;
          if (round * kCols + l >= num_cols) continue;
          auto rows = *reinterpret_cast<const uint4*>(staging + l / 64 * (kRows * 128) +
                                                      unit_offset(l % 64, unit0));
          if (folded(p) && unit0 % 2 == 1) swap_pairs(rows);
          *reinterpret_cast<uint4*>(out + (round * kCols + line) * line_stride) = rows;
        }
      } else if (unit0 * 8 < kCols && round * kCols + unit0 * 8 < num_cols) {
#pragma unroll 4
        for (int line = 0; line < 16; line += 2) {
          if (!kBlockRows && own_row + lane / 16 + line >= p.rows) break;
          *reinterpret_cast<uint4*>(out + round * kCols + line * line_stride) =
              *reinterpret_cast<const uint4*>(staging + unit0 / 8 * (kRows * 128) +
                                              unit_offset(line0 + line, unit0 % 8));
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
    store_by_fours<C::kTileCols, C::kStagedCols>(
        staging, p.result.alpha, p.result.rows_inner, folded(p), end_col - first_col, barrier, acc,
        [&](std::int32_t row, std::int32_t col, float (&values)[4]) {
          write_four(p, first_row + row, first_col + col, end_col, values);
        });
  }

  /// As far as the result goes.
  static __device__ void write_four(const P& p, std::int32_t row_in_groups, std::int32_t col,
                                    std::int32_t end_col, float (&values)[4]) {
    const std::int32_t row = row_of(p, row_in_groups);
    if (row >= p.rows || col >= end_col) return;
    put_four<Element>(p.result, row * p.result.out.sparse_stride + col * p.result.out.dense_stride,
                      row * p.result.c.sparse_stride + col * p.result.c.dense_stride,
                      p.result.rows_inner ? p.result.c.sparse_stride : p.result.c.dense_stride,
                      min(4, p.result.rows_inner ? p.rows - row : end_col - col), values);
  }
};

}  // namespace sparsek::bsr::sm90
