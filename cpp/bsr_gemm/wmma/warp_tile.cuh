#pragma once

#include "bsr_gemm/wmma/config.h"
#include "bsr_gemm/wmma/tiles.cuh"
#include "primitives/barrier.cuh"
#include "primitives/quad.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::bsr::wmma {

/// The sums of a warp, kWarpRows x kWarpCols of the CTA's tile.
template <class Element, class C, Major kLeft, Major kRight>
class WarpTile {
 public:
  __device__ __forceinline__ WarpTile(const Params& params)
      : left_by_k_(params.left.k_inner || !params.left.vectors),
        right_by_k_(params.right.k_inner || !params.right.vectors) {
    clear();
  }

  __device__ __forceinline__ void clear() { zero(sums_); }

  /// Fetches the fragments of the k-th 16 of a stage into one of two sets of registers.
  __device__ __forceinline__ void fetch(std::uint32_t left, std::uint32_t right, int k, int set) {
    constexpr int kLineK = line_bytes(C::kTileK);
    auto& a = a_[set];
    auto& b = b_[set];
    // Matrices of a: rows 0 and 8 in k 0, rows 0 and 8 in k 8.
    if (kLeft == Major::k || (kLeft == Major::any && left_by_k_)) {
      const std::uint32_t from =
          left + (warp_row() + lane() % 16) * kLineK + lane() / 16 * 16 + k * 32;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_matrices(from + i * 16 * kLineK, a[i]);
    } else {
      constexpr int kLine = line_bytes(C::kTileRows);
      const std::uint32_t from = left + (16 * k + lane() % 8 + lane() / 16 * 8) * kLine +
                                 (warp_row() + lane() / 8 % 2 * 8) * 2;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_matrices_transposed(from + i * 32, a[i]);
    }
    // Matrices of b: columns 0 in k 0 and 8, columns 8 in k 0 and 8.
    if (kRight == Major::k || (kRight == Major::any && right_by_k_)) {
      const std::uint32_t from = right + (warp_col() + lane() % 8 + lane() / 16 * 8) * kLineK +
                                 lane() / 8 % 2 * 16 + k * 32;
#pragma unroll
      for (int j = 0; j < kColTiles / 2; ++j) load_matrices(from + j * 16 * kLineK, b[j]);
    } else {
      constexpr int kLine = line_bytes(C::kTileCols);
      const std::uint32_t from =
          right + (16 * k + lane() % 16) * kLine + (warp_col() + lane() / 16 * 8) * 2;
#pragma unroll
      for (int j = 0; j < kColTiles / 2; ++j) load_matrices_transposed(from + j * 32, b[j]);
    }
  }

  /// Adds the product of a set; between its parts, between(0), between(1), ... are called.
  template <class Fn>
  __device__ __forceinline__ void multiply(int set, const Fn& between) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      if (i > 0) between(i - 1);
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) {
        mma<Element>(sums_[i][j], a_[set][i], b_[set][j / 2][j % 2 * 2],
                     b_[set][j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  /// alpha * sum + beta * c.
  /// `cols`: from here to the end of the run.
  __device__ __forceinline__ void store(const Params& p, Tile tile, std::int32_t cols) const {
    tile.col += tile.cols - cols;
    tile.cols = cols;
    // Unknown to the compiler, which would compute addresses before the products, and spill them.
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    const std::int64_t block = p.sampled ? tile.entry : 0;
    const std::int64_t row0 = tile.row + (p.sampled ? 0 : tile.block_row * p.left.block);
    const std::int64_t col0 = tile.col + (p.sampled ? 0 : tile.block_col * p.right.block);
    const std::int64_t at =
        block * p.out.block_stride + row0 * p.out.row_stride + col0 * p.out.col_stride;
    const std::int64_t c_at =
        block * p.c.block_stride + row0 * p.c.row_stride + col0 * p.c.col_stride;
    if (p.wide_out) {
      store_as(p, tile, thread, static_cast<float*>(p.out.data) + at,
               static_cast<const float*>(p.c.data) + c_at);
    } else {
      store_as(p, tile, thread, static_cast<Element*>(p.out.data) + at,
               static_cast<const Element*>(p.c.data) + c_at);
    }
  }

  static constexpr int kParts = C::kWarpRows / 16;

 private:
  static constexpr int kRowTiles = C::kWarpRows / 16;
  static constexpr int kColTiles = C::kWarpCols / 8;

  __device__ __forceinline__ static int lane(int thread) { return thread % 32; }
  __device__ __forceinline__ static int lane() { return lane(static_cast<int>(threadIdx.x)); }
  __device__ __forceinline__ static int warp_row(int thread) {
    return thread / 32 / C::kWarpsInCols * C::kWarpRows;
  }
  __device__ __forceinline__ static int warp_row() {
    return warp_row(static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ static int warp_col(int thread) {
    return thread / 32 % C::kWarpsInCols * C::kWarpCols;
  }
  __device__ __forceinline__ static int warp_col() {
    return warp_col(static_cast<int>(threadIdx.x));
  }

  template <class Out>
  __device__ __forceinline__ void store_as(const Params& p, const Tile& tile, int thread, Out* out,
                                           const Out* c) const {
    if constexpr (sizeof(Out) == 2 && kColTiles % 4 == 0) {
      const bool whole = p.beta == 0.0f && p.out.col_stride == 1 && tile.cols >= C::kTileCols &&
                         (reinterpret_cast<std::uintptr_t>(out) |
                          static_cast<std::uintptr_t>(p.out.row_stride * 2)) %
                                 16 ==
                             0;
      if (whole) return store_whole(p, tile, thread, out);
    }
    // Two elements beside each other can be written at once.
    const bool pairs =
        p.out.col_stride == 1 && (reinterpret_cast<std::uintptr_t>(out) |
                                  static_cast<std::uintptr_t>(p.out.row_stride * sizeof(Out))) %
                                         (2 * sizeof(Out)) ==
                                     0;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = warp_row(thread) + 16 * i + 8 * r + lane(thread) / 4;
        if (row >= tile.rows) continue;
#pragma unroll
        for (int j = 0; j < kColTiles; ++j) {
          const int col = warp_col(thread) + 8 * j + lane(thread) % 4 * 2;
          if (col >= tile.cols) continue;
          float values[2] = {p.alpha * sums_[i][j][2 * r], p.alpha * sums_[i][j][2 * r + 1]};
          const bool both = col + 1 < tile.cols;
          if (p.beta != 0.0f) {
            const Out* from = c + row * p.c.row_stride + col * p.c.col_stride;
            values[0] += p.beta * static_cast<float>(from[0]);
            if (both) values[1] += p.beta * static_cast<float>(from[p.c.col_stride]);
          }
          Out* to = out + row * p.out.row_stride + col * p.out.col_stride;
          if (pairs && both) {
            store_pair(to, values[0], values[1]);
          } else {
            to[0] = static_cast<Out>(values[0]);
            if (both) to[p.out.col_stride] = static_cast<Out>(values[1]);
          }
        }
      }
    }
  }

  /// All columns of the tile, 16 bytes from each lane.
  __device__ __forceinline__ void store_whole(const Params& p, const Tile& tile, int thread,
                                              Element* out) const {
    const int first = warp_row(thread) + lane(thread) / 4;
    out += first * p.out.row_stride + warp_col(thread) + 8 * (lane(thread) % 4);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const bool inside = first + 16 * i + 8 * r < tile.rows;
#pragma unroll
        for (int j = 0; j < kColTiles; j += 4) {
          std::uint32_t word[4];
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            word[w] = pack<Element>(p.alpha * sums_[i][j + w][2 * r],
                                    p.alpha * sums_[i][j + w][2 * r + 1]);
          }
          transpose_quad(word);
          if (inside) {
            *reinterpret_cast<uint4*>(out + 8 * j) = make_uint4(word[0], word[1], word[2], word[3]);
          }
        }
        out += 8 * p.out.row_stride;
      }
    }
  }

  __device__ __forceinline__ static void store_pair(float* to, float x, float y) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
  }
  __device__ __forceinline__ static void store_pair(Element* to, float x, float y) {
    *reinterpret_cast<std::uint32_t*>(to) = pack<Element>(x, y);
  }

  bool left_by_k_;
  bool right_by_k_;
  std::uint32_t a_[2][kRowTiles][4];
  std::uint32_t b_[2][kColTiles / 2][4];
  float sums_[kRowTiles][kColTiles][4];
};

}  // namespace sparsek::bsr::wmma
