#pragma once

#include <cutlass/numeric_conversion.h>

#include <cute/arch/copy_sm90_tma.hpp>

#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/storage.cuh"
#include "primitives/barrier.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Until shared memory has been read that this warp had TMA store.
__device__ __forceinline__ void wait_for_tma_store() {
  if (cute::elect_one_sync()) cute::tma_store_wait<0>();
  __syncwarp();
}

/// The rows of a warp, through its part of `tile` in shared memory.
template <class Element, class C, class Accumulator>
__device__ __forceinline__ void store_tile_by_tma(const Params& params, const Work& work,
                                                  int tile_row, const Accumulator& output,
                                                  const RowSoftmax& softmax, Element* tile) {
  constexpr int kUnits = C::kSlabV / 8;  // 16 bytes each, of a slab's row
  const int lane = threadIdx.x % 32;
  const int warp_row = tile_row - lane / 4;
  Element* const rows = tile + warp_row * C::kSlabV;
  // TMA's swizzle: the unit's number is changed by that of its row's 128 bytes.
  const int row = lane % 16, unit = lane / 16 ^ row * kUnits / 8 % kUnits;
  const std::uint32_t to = shared_address(rows) + (row * kUnits + unit) * 16;
  const float factor[2] = {softmax.inverse_sum(0), softmax.inverse_sum(1)};
  cutlass::NumericArrayConverter<Element, float, 2> convert;
  CUTE_UNROLL
  for (int j = 0; j < C::kValueDim / 8; j += 2) {
    std::uint32_t word[4];
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * (j + i / 2) + 2 * (i % 2);
      const auto pair = convert({output(at) * factor[i % 2], output(at + 1) * factor[i % 2]});
      word[i] = reinterpret_cast<const std::uint32_t&>(pair);
    }
    const int slab = j / kUnits;
    ptx::store_matrices((to ^ j % kUnits * 16) + slab * C::kTileQ * C::kSlabV * 2, word);
  }
  cute::tma_store_fence();
  __syncwarp();
  if (cute::elect_one_sync()) {
    CUTE_UNROLL
    for (int slab = 0; slab < C::kValueDim / C::kSlabV; ++slab) {
      cute::SM90_TMA_STORE_4D::copy(&params.o, rows + slab * C::kTileQ * C::kSlabV,
                                    slab * C::kSlabV, work.q_begin + warp_row, work.head,
                                    work.batch);
    }
    cute::tma_store_arrive();
  }
}

}  // namespace sparsek::attn::sm90
