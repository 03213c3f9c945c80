#pragma once

#include <cuda_runtime.h>

#include "attention/input.h"
#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::attn {

/// One 16-byte unit, element by element.
__device__ __forceinline__ void copy_by_element(std::uint32_t to, const char* row, int count) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(row);
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 2 * i < count ? from[2 * i] : 0;
    if (2 * i + 1 < count) words[i] |= static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
  }
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Where the rows of a batch and head begin.
__device__ __forceinline__ const char* rows_of(const Input& input, std::int32_t batch,
                                               std::int32_t head) {
  return static_cast<const char*>(input.data) +
         2 * (batch * input.batch_stride + head * input.head_stride);
}

/// Brings kTileRows rows of q, k or v into shared memory, zeros where a row or a column is not
/// there. `rows`: of the batch and head; place_of(tile row) is a row's place there, and those of
/// [0, end) are there; place_of_any is the same for rows that the compiler does not know. Each
/// thread takes one 16-byte unit of every kPass-th row.
///   C::kRowUnits  16-byte units of a row of the tile
template <class C, int kTileRows, class PlaceOf, class PlaceOfAny>
__device__ __forceinline__ void load_rows(const Input& input, const char* rows,
                                          const unsigned char* to, std::uint32_t end,
                                          const PlaceOf& place_of, const PlaceOfAny& place_of_any) {
  constexpr int kPass = C::kThreads / C::kRowUnits;
  static_assert(kTileRows % kPass == 0);
  const int unit = static_cast<int>(threadIdx.x) % C::kRowUnits;
  const int first_row = static_cast<int>(threadIdx.x) / C::kRowUnits;
  const std::uint32_t address = shared_address(to);
  const int bytes = 2 * min(8, max(0, input.dim - 8 * unit));
  const char* from = rows + 16 * unit;
  if (input.vectors) {
#pragma unroll
    for (int pass = 0; pass < kTileRows; pass += kPass) {
      const int tile_row = pass + first_row;
      const std::int32_t place = place_of(pass, first_row);
      // Where nothing is copied the address is not looked at.
      copy_async(address + swizzled<C::kRowUnits>(tile_row, unit),
                 from + std::int64_t{place} * input.row_bytes,
                 static_cast<std::uint32_t>(place) < end ? bytes : 0);
    }
  } else {
#pragma unroll 1
    for (int tile_row = first_row; tile_row < kTileRows; tile_row += kPass) {
      const std::int32_t place = place_of_any(tile_row);
      copy_by_element(address + swizzled<C::kRowUnits>(tile_row, unit),
                      from + std::int64_t{place} * input.row_bytes,
                      static_cast<std::uint32_t>(place) < end ? bytes / 2 : 0);
    }
  }
}

}  // namespace sparsek::attn
