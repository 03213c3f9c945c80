#pragma once

#include "bsr_gemm/sm90/staging.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"
#include "primitives/shared_access.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::bsr::sm90 {

// Results go to memory through the staging memory of a warp group, by units of 16 bytes, T being
// Element or float: 64 rows and kUnitCols<T> columns at a time. Lines of 16 units are rows,
// kAcross: of results in float32 columns, of those of 16 bits the first 64 columns, and behind them
// in units from 8 on the others.

template <class T>
constexpr int kInUnit = 16 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kUnitCols = 16 * kInUnit<T>;

/// Where a unit lies, permuted against bank conflicts: what a warp writes at a time are eight rows,
/// in float32 four of two units each, or the units of every second column.
template <class T, bool kAcross>
__device__ std::uint32_t staged_unit(int line, int unit) {
  const bool by_pairs = std::is_same_v<T, float> && !kAcross;
  const int permuted = by_pairs ? (line & 3) * 2 + (line >> 2 & 1) : line & 7;
  return unit / 8 * (64 * 128) + line * 128 + (unit % 8 ^ permuted) * 16;
}

/// A warp's 16 rows of 64 of a tile's sums and the staging memory. `folded`: rows are as
/// in_folded_order has them.
template <class T, bool kAcross>
class StagedUnits {
 public:
  __device__ StagedUnits(unsigned char* staging, bool folded)
      : staging_(shared_address(staging)),
        folded_(folded),
        row_in_matrix_(folded && !kAcross ? in_folded_order(lane() % 16) % 8 : lane() % 8) {}

  /// Puts the kCols sums from first_col on there, times alpha.
  template <int kCols, class Acc>
  __device__ __forceinline__ void put(float alpha, int first_col, const Acc& acc) const {
#pragma unroll
    for (int col = 0; col < kCols; col += 16) {
      std::uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = first_sum(first_col + col, i);
        r[i] = pack<T>(alpha * acc(at), alpha * acc(at + 1));
      }
      ptx::store_matrices<kAcross>(of_lane(col), r);
    }
  }

  /// Those sums become alpha times themselves and beta times what is there, rounded as in
  /// put_staged.
  template <int kCols, class Acc>
  __device__ __forceinline__ void add(float alpha, float beta, int first_col, Acc& acc) const {
#pragma unroll
    for (int col = 0; col < kCols; col += 16) {
      std::uint32_t r[4];
      if constexpr (kAcross) {
        load_matrices_transposed(of_lane(col), r);
      } else {
        load_matrices(of_lane(col), r);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (kAcross && i % 2 == 1 && folded_) r[i] = __shfl_xor_sync(0xffffffffu, r[i], 4);
        const int at = first_sum(first_col + col, i);
        const float2 c = unpack(T{}, r[i]);
        acc(at) = fmaf(beta, c.x, alpha * acc(at));
        acc(at + 1) = fmaf(beta, c.y, alpha * acc(at + 1));
      }
    }
  }

  __device__ std::uint32_t place(int line, int unit) const {
    return staging_ + staged_unit<T, kAcross>(line, unit);
  }
  /// What has been put there.
  __device__ uint4 get(std::uint32_t place, int unit) const {
    uint4 values = load_shared_four(place);
    if (kAcross && folded_ && unit % 2 == 1) {
      for (std::uint32_t* const word : {&values.x, &values.y, &values.z, &values.w}) {
        *word = __byte_perm(*word, 0, 0x1032);
      }
    }
    return values;
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  /// Four 8 x 8 matrices are written or read at once: i has rows (i % 2) * 8 ... and columns
  /// col + (i / 2) * 8 .... The line of one that a lane gives the address of.
  __device__ std::uint32_t of_lane(int col) const {
    const int row = static_cast<int>(threadIdx.x % 128 / 32) * 16 + lane() / 8 % 2 * 8;
    const int in_line = col % 64 + lane() / 16 * 8;
    const int line = (kAcross ? in_line : row) + row_in_matrix_;
    const int unit = (kAcross ? row : in_line) / 8;
    return place(line, col / 64 * 8 + unit);
  }

  /// A thread's sums of matrix i begin there.
  static constexpr int first_sum(int col, int i) { return (col / 8 + i / 2) * 4 + i % 2 * 2; }

  std::uint32_t staging_;
  bool folded_;
  int row_in_matrix_;
};

/// In float32.
template <bool kAcross>
class StagedUnits<float, kAcross> {
 public:
  __device__ StagedUnits(unsigned char* staging, bool folded)
      : staging_(shared_address(staging)), folded_(folded) {}

  template <int kCols, class Acc>
  __device__ __forceinline__ void put(float alpha, int first_col, const Acc& acc) const {
    for_pairs<kCols>([&](int at, int row, int col) {
      at += first_col / 8 * 4;
      const float2 sums = make_float2(alpha * acc(at), alpha * acc(at + 1));
      if constexpr (kAcross) {
        store_shared(element(col, row), sums.x);
        store_shared(element(col + 1, row), sums.y);
      } else {
        store_shared(element(row, col), sums);
      }
    });
  }

  template <int kCols, class Acc>
  __device__ __forceinline__ void add(float alpha, float beta, int first_col, Acc& acc) const {
    for_pairs<kCols>([&](int at, int row, int col) {
      at += first_col / 8 * 4;
      const float2 c =
          kAcross ? make_float2(load_shared(element(col, row)), load_shared(element(col + 1, row)))
                  : load_shared_two(element(row, col));
      acc(at) = fmaf(beta, c.x, alpha * acc(at));
      acc(at + 1) = fmaf(beta, c.y, alpha * acc(at + 1));
    });
  }

  __device__ std::uint32_t place(int line, int unit) const {
    return staging_ + staged_unit<float, kAcross>(line, unit);
  }
  __device__ uint4 get(std::uint32_t place, int) const { return load_shared_four(place); }

 private:
  /// Where they are staged; that is as they lie in memory.
  template <int kCols, class Each>
  __device__ __forceinline__ void for_pairs(const Each& each) const {
    const int warp = static_cast<int>(threadIdx.x % 128 / 32), lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = warp * 16 + i * 8 + lane / 4, row = folded_ ? in_folded_order(own) : own;
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) each(j * 4 + i * 2, row, j * 8 + lane % 4 * 2);
    }
  }

  __device__ std::uint32_t element(int line, int at) const {
    return place(line, at / 4) + at % 4 * 4;
  }

  std::uint32_t staging_;
  bool folded_;
};

}  // namespace sparsek::bsr::sm90
