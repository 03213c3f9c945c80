#pragma once

#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::attn {

/// scores = Q K^T of kFragments times 16 queries of a warp and 8 kTiles keys, of which `address` is
/// the lane's in the tile of K (rows of kRowUnits 16-byte units) and `column` the first.
/// load_q(m, k, a) gives fragment m's head_dims from 16 k on.
template <class Element, int kRowUnits, int kFragments, int kTiles, class LoadQ>
__device__ __forceinline__ void multiply_q_k(std::uint32_t address, int column, const LoadQ& load_q,
                                             float (&scores)[kFragments][kTiles][4]) {
  zero(scores);
#pragma unroll
  for (int k = 0; k < kRowUnits / 2; ++k) {
    std::uint32_t a[kFragments][4];
#pragma unroll
    for (int m = 0; m < kFragments; ++m) load_q(m, k, a[m]);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      std::uint32_t b[4];
      load_matrices(further<kRowUnits>(address, column + 8 * j, 2 * k), b);
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
        mma<Element>(scores[m][j], a[m], b[0], b[1]);
        mma<Element>(scores[m][j + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// A lane's address in a tile of K: row of the first 8x8 matrix that it names.
template <int kRowUnits>
__device__ __forceinline__ std::uint32_t k_address_of(const unsigned char* k, int lane) {
  return shared_address(k) + swizzled<kRowUnits>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/// The same in a tile of Q, of a warp whose rows begin at first_row.
template <int kRowUnits>
__device__ __forceinline__ std::uint32_t q_address_of(const unsigned char* q, int first_row,
                                                      int lane) {
  return shared_address(q) + swizzled<kRowUnits>(first_row + lane % 16, lane / 16);
}

}  // namespace sparsek::attn
