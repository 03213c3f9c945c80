#pragma once

#include <cutlass/arch/barrier.h>

#include "bsr_gemm/sm90/params.h"
#include "bsr_gemm/sm90/staging.cuh"
#include "bsr_gemm/sm90/store_fours.cuh"
#include "bsr_gemm/sm90/store_units.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {

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

  /// The first row of the result that this thread stores of 16 bits, read from memory.
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

  /// kAllInUnits: results in float32 and with c too, which takes as much code again, and registers.
  template <bool kAllInUnits, class Acc>
  static __device__ void run(const P& p, unsigned char* staging, std::int32_t first_row,
                             std::int32_t own_row, std::int32_t first_col, std::int32_t end_col,
                             int barrier, Acc& acc) {
    const Result& r = p.result;
    const bool in_units =
        r.aligned &&
        (kAllInUnits ? r.beta == 0.0f || r.c_aligned : r.beta == 0.0f && !r.wide_out) &&
        (r.rows_inner ? kBlockRows || p.rows % 8 == 0 : p.cols % 8 == 0);
    if (!in_units) {
      store(p, staging, first_row, first_col, end_col, barrier, acc);
    } else if (!r.wide_out) {
      store_units<Element, kAllInUnits>(p, staging, own_row, first_col, end_col, barrier, acc);
    } else if constexpr (kAllInUnits) {
      const int row = threadIdx.x % 16 * 4;
      store_units<float, true>(p, staging, r.rows_inner ? row_of(p, first_row + row) : own_row,
                               first_col, end_col, barrier, acc);
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

  /// Results of type T, in units of 16 bytes as far as the result goes.
  template <class T, bool kMayAddC, class Acc>
  static __device__ void store_units(const P& p, unsigned char* staging, std::int32_t own_row,
                                     std::int32_t first_col, std::int32_t end_col, int barrier,
                                     Acc& acc) {
    const auto store = [&](auto across, auto adds_c) {
      store_lines<T, decltype(across)::value, decltype(adds_c)::value>(
          p, staging, own_row, first_col, end_col, barrier, acc);
    };
    using std::true_type, std::false_type;
    if constexpr (kMayAddC) {
      if (p.result.beta != 0.0f) {
        return p.result.rows_inner ? store(true_type{}, true_type{})
                                   : store(false_type{}, true_type{});
      }
    }
    p.result.rows_inner ? store(true_type{}, false_type{}) : store(false_type{}, false_type{});
  }

  /// kAcross: the rows are contiguous in the result, so its lines are columns, and every warp needs
  /// what the others have. kAddC: with code of its own, since what others jump over holds them
  /// up. Not by TMA: its stores would queue behind the loads of the next tile.
  template <class T, bool kAcross, bool kAddC, class Acc>
  static __device__ void store_lines(const P& p, unsigned char* staging, std::int32_t own_row,
                                     std::int32_t first_col, std::int32_t end_col, int barrier,
                                     Acc& acc) {
    constexpr int kCols = C::kTileCols < kUnitCols<T> ? C::kTileCols : kUnitCols<T>;
    const auto sync = [&] {
      if constexpr (kAcross) {
        cutlass::arch::NamedBarrier::sync(128, barrier);
      } else {
        __syncwarp();
      }
    };
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const StagedUnits<T, kAcross> units(staging, folded(p));
    // A thread takes kUnits, each so many lines behind the one before: across, of all columns, else
    // of the rows of its warp.
    constexpr int kOfLine = kAcross ? kRows / kInUnit<T> : 16;
    constexpr int kStep = (kAcross ? 128 : 32) / kOfLine, kUnits = (kAcross ? kCols : 16) / kStep;
    constexpr int kBatch = kUnits < 4 ? kUnits : 4;
    const int line0 = kAcross ? thread / kOfLine : warp * 16 + lane / kOfLine;
    const int unit0 = thread % kOfLine;
    const auto staged = [&](int i) {
      const int line = line0 + i * kStep;
      return kAcross ? units.place(line % 64, line / 64 * 8 + unit0) : units.place(line, unit0);
    };
    // The rows of a warp, or of a unit, lie in one block row: beside each other in the result, or
    // all of them beyond it, unless they are not those of blocks.
    const std::int32_t row = own_row + (kAcross ? 0 : lane / kOfLine);
    const std::int32_t col_in_round = kAcross ? line0 : unit0 * kInUnit<T>;
    const std::int32_t num_cols = own_row < p.rows ? end_col - first_col : 0;
    const auto wanted = [&](int first, int i) {
      if constexpr (kAcross) return first + col_in_round + i * kStep < num_cols;
      return first + col_in_round < num_cols && (kBlockRows || row + i * kStep < p.rows);
    };
    const auto lines_of = [&](const Matrix& m, int first) {
      struct Lines {
        T* begin;
        std::int64_t stride;
      };
      const std::int32_t col = first_col + first + col_in_round;
      return Lines{static_cast<T*>(m.data) + row * m.sparse_stride + col * m.dense_stride,
                   kStep * (kAcross ? m.dense_stride : m.sparse_stride)};
    };
#pragma unroll
    for (int first = 0; first < C::kTileCols; first += kCols) {
      sync();  // the last round has been read
      float alpha = opaque(p.result.alpha);
      const bool has_units = kAcross || col_in_round < kCols;
      if constexpr (kAddC) {
        const auto c = lines_of(p.result.c, first);
#pragma unroll 4
        for (int i = 0; i < kUnits; ++i) {
          if (has_units && wanted(first, i)) copy_async(staged(i), c.begin + i * c.stride, 16);
        }
        wait_all_copies();
        sync();
        units.template add<kCols>(alpha, p.result.beta, first, acc);
        alpha = 1;
        __syncwarp();  // no warp reads what another one is to write
      }
      units.template put<kCols>(alpha, first, acc);
      sync();
      if (!has_units) continue;
      const auto out = lines_of(p.result.out, first);
#pragma unroll 1
      for (int i = 0; i < kUnits; i += kBatch) {
        uint4 values[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) values[j] = units.get(staged(i + j), unit0);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          if (wanted(first, i + j)) {
            *reinterpret_cast<uint4*>(out.begin + (i + j) * out.stride) = values[j];
          }
        }
      }
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
