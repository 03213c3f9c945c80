#pragma once

#include <cuda_runtime.h>

#include "attention/wmma/storage.cuh"
#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::attn::wmma {

/// Brings rows of q, k or v into shared memory, zeros where a row or a column is not there. Each
/// thread takes one 16-byte unit of every kRows-th row.
template <class C>
class RowLoader {
 public:
  static constexpr int kRows = C::kThreads / C::kRowUnits;
  static_assert(kGranule % kRows == 0, "which granule a pass is in is known to the compiler");

  __device__ __forceinline__ RowLoader(const Input& input, std::int64_t batch, std::int64_t head)
      : input_(input),
        base_(static_cast<const char*>(input.data) +
              2 * (batch * input.batch_stride + head * input.head_stride)) {}

  __device__ __forceinline__ static int unit() {
    return static_cast<int>(threadIdx.x) % C::kRowUnits;
  }
  __device__ __forceinline__ static int row() {
    return static_cast<int>(threadIdx.x) / C::kRowUnits;
  }

  /// kTileRows rows; place_of(tile row) is its place in the tensor, those of [0, end) are there.
  template <int kTileRows, class PlaceOf>
  __device__ __forceinline__ void load(const unsigned char* to, std::uint32_t end,
                                       const PlaceOf& place_of) const {
    const std::uint32_t address = shared_address(to);
    const int bytes = 2 * min(8, max(0, input_.dim - 8 * unit()));
    const char* from = base_ + 16 * unit();
    if (input_.vectors) {
#pragma unroll
      for (int pass = 0; pass < kTileRows / kRows; ++pass) {
        const int tile_row = pass * kRows + row();
        const std::int32_t place = place_of(tile_row);
        // Where nothing is copied the address is not looked at.
        copy_async(address + swizzled<C::kRowUnits>(tile_row, unit()),
                   from + std::int64_t{place} * input_.row_bytes,
                   static_cast<std::uint32_t>(place) < end ? bytes : 0);
      }
    } else {
#pragma unroll 1
      for (int pass = 0; pass < kTileRows / kRows; ++pass) {
        const int tile_row = pass * kRows + row();
        const std::int32_t place = place_of(tile_row);
        load_by_element(address + swizzled<C::kRowUnits>(tile_row, unit()),
                        from + std::int64_t{place} * input_.row_bytes,
                        static_cast<std::uint32_t>(place) < end ? bytes / 2 : 0);
      }
    }
  }

 private:
  __device__ __forceinline__ static void load_by_element(std::uint32_t to, const char* row,
                                                         int count) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(row);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = 2 * i < count ? from[2 * i] : 0;
      if (2 * i + 1 < count) words[i] |= static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  const Input& input_;
  const char* base_;
};

}  // namespace sparsek::attn::wmma
