#pragma once

#include "bsr_gemm/wmma/queue.cuh"
#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::bsr::wmma {

/// Brings an operand's part of a tile, kFree rows (or columns) by kTileK, into shared memory, zeros
/// where it has nothing. Lines lie along the axis that is contiguous in memory.
template <class C, int kFree>
class OperandLoader {
 public:
  __device__ __forceinline__ OperandLoader(const Operand& operand, const void* first,
                                           std::int32_t count)
      : operand_(operand), first_(static_cast<const char*>(first)), count_(count) {}

  /// place_of(granule of the tile) is in elements from `first`; `k_left`: of k from the tile on.
  template <class PlaceOf>
  __device__ __forceinline__ void load(std::uint32_t to, std::int32_t k_left,
                                       const PlaceOf& place_of) const {
    if (!operand_.vectors) {
      load_by_element(to, k_left, place_of);
    } else if (operand_.k_inner) {
      constexpr int kUnits = C::kTileK / 8;
      const Walk<kUnits> walk;
      const std::int32_t left = k_left - 8 * walk.unit;
      const char* from = first_ + 2 * (place_of(walk.unit / 2) + walk.unit % 2 * 8 +
                                       walk.line * operand_.free_stride);
      to += walk.line * line_bytes(C::kTileK) + walk.unit * 16;
#pragma unroll
      for (int line = 0; line < kFree; line += walk.kStep) {
        if (kFree % walk.kStep != 0 && walk.line + line >= kFree) break;
        copy(to + line * line_bytes(C::kTileK), from, walk.line + line < count_ ? left : 0);
        from += 2 * walk.kStep * operand_.free_stride;
      }
    } else {
      constexpr int kUnits = kFree / 8;
      const Walk<kUnits> walk;
      const std::int32_t left = count_ - 8 * walk.unit;
      to += walk.line * line_bytes(kFree) + walk.unit * 16;
#pragma unroll
      for (int line = 0; line < C::kTileK; line += walk.kStep) {
        const int k = walk.line + line;
        if (C::kTileK % walk.kStep != 0 && k >= C::kTileK) break;
        const char* from = first_ + 2 * (place_of(k / kGranule) + walk.unit * 8 +
                                         k % kGranule * operand_.k_stride);
        copy(to + line * line_bytes(kFree), from, k < k_left ? left : 0);
      }
    }
  }

 private:
  /// A thread's units: one in every kStep-th line.
  template <int kUnits>
  struct Walk {
    static constexpr int kStep = C::kThreads / kUnits;
    static_assert(C::kThreads % kUnits == 0);
    int unit = static_cast<int>(threadIdx.x) % kUnits;
    int line = static_cast<int>(threadIdx.x) / kUnits;
  };

  /// 8 elements, of which `left` are there.
  __device__ __forceinline__ void copy(std::uint32_t to, const char* from,
                                       std::int32_t left) const {
    const int bytes = 2 * max(0, min(8, left));
    // Where nothing is copied the address still has to be one of the operand's.
    if (bytes == 0) from = static_cast<const char*>(operand_.data);
    copy_async(to, from, bytes);
  }

  /// Any strides. Lines lie along k.
  template <class PlaceOf>
  __device__ __forceinline__ void load_by_element(std::uint32_t to, std::int32_t k_left,
                                                  const PlaceOf& place_of) const {
    constexpr int kUnits = C::kTileK / 8;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kFree * kUnits; i += C::kThreads) {
      const int unit = i % kUnits, line = i / kUnits;
      const std::int32_t left = line < count_ ? k_left - 8 * unit : 0;
      const auto* from = reinterpret_cast<const std::uint16_t*>(first_) +
                         line * operand_.free_stride + unit % 2 * 8 * operand_.k_stride +
                         (left > 0 ? place_of(unit / 2) : 0);
      std::uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        words[w] = 2 * w < left ? from[2 * w * operand_.k_stride] : 0;
        if (2 * w + 1 < left) {
          words[w] |= static_cast<std::uint32_t>(from[(2 * w + 1) * operand_.k_stride]) << 16;
        }
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                       to + line * line_bytes(C::kTileK) + unit * 16),
                   "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  }

  const Operand& operand_;
  const char* first_;  // of the tile's rows or columns, in k 0 (of its block)
  std::int32_t count_;
};

}  // namespace sparsek::bsr::wmma
