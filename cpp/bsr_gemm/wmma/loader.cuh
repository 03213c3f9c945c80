#pragma once

#include "bsr_gemm/wmma/queue.cuh"
#include "primitives/barrier.cuh"
#include "primitives/warp_mma.cuh"

namespace sparsek::bsr::wmma {

/// Brings an operand's part of a tile, kFree rows (or columns) by kTileK, into shared memory, zeros
/// where it has nothing. Lines lie along the axis that is contiguous in memory; where that is none,
/// or not aligned, along k.
template <class C, int kFree, Major kMajor>
class OperandLoader {
  /// A thread's units: one in every kStep-th line.
  template <int kUnits, int kLines>
  struct Walk {
    static constexpr int kStep = C::kThreads / kUnits;
    // Of those lines, if they lie along the free axis.
    static constexpr int kGranules =
        kStep > kGranule ? (kLines + kStep - 1) / kStep : (kLines + kGranule - 1) / kGranule;
    static_assert(C::kThreads % kUnits == 0);
    static_assert(kGranule % kStep == 0 || kStep % kGranule == 0);
    __device__ __forceinline__ static int unit() { return static_cast<int>(threadIdx.x) % kUnits; }
    __device__ __forceinline__ static int line() { return static_cast<int>(threadIdx.x) / kUnits; }
  };
  using ByK = Walk<C::kTileK / 8, kFree>;
  using ByFree = Walk<kFree / 8, C::kTileK>;
  static constexpr int kMostGranules = kMajor == Major::k ? 1 : ByFree::kGranules;

 public:
  /// `first`: of the tile's rows or columns, at k 0 (of its block); `count` of them are there.
  __device__ __forceinline__ OperandLoader(const Operand& operand, const void* first,
                                           std::int32_t count)
      : operand_(operand), count_(count), from_(static_cast<const char*>(first)) {
    if (!operand.vectors) return;
    if (by_k()) {
      from_ += 2 * (ByK::unit() % 2 * 8 + ByK::line() * operand.free_stride);
    } else {
      from_ += 2 * (ByFree::unit() * 8 + ByFree::line() % kGranule * operand.k_stride);
    }
  }

  /// Where a thread's units lie: read some time before they are copied.
  struct Places {
    std::int64_t at[kMostGranules];
  };
  /// `places`: of the tile's granules, every second number, in bytes.
  __device__ __forceinline__ Places look(const std::int64_t* places) const {
    Places found;
    if (by_k()) {
      found.at[0] = places[ByK::unit() / 2 * 2];
    } else {
#pragma unroll
      for (int i = 0; i < ByFree::kGranules; ++i) {
        found.at[i] = places[(i * (ByFree::kStep > kGranule ? ByFree::kStep / kGranule : 1) +
                              ByFree::line() / kGranule) *
                             2];
      }
    }
    return found;
  }

  /// `k_left`: of k, from the tile on.
  __device__ __forceinline__ void copy(std::uint32_t to, const std::int64_t* places,
                                       const Places& found, std::int32_t k_left) const {
    if (kMajor == Major::any && !operand_.vectors) {
      copy_by_element(to, places, k_left);
    } else if (by_k()) {
      const int bytes = 2 * clamp_to_unit(k_left - 8 * ByK::unit());
      const char* from = from_ + found.at[0];
      to += ByK::line() * line_bytes(C::kTileK) + ByK::unit() * 16;
#pragma unroll
      for (int line = 0; line < kFree; line += ByK::kStep) {
        if (kFree % ByK::kStep != 0 && ByK::line() + line >= kFree) break;
        copy_async(to + line * line_bytes(C::kTileK), from,
                   ByK::line() + line < count_ ? bytes : 0);
        from += 2 * ByK::kStep * operand_.free_stride;
      }
    } else {
      const int bytes = 2 * clamp_to_unit(count_ - 8 * ByFree::unit());
      to += ByFree::line() * line_bytes(kFree) + ByFree::unit() * 16;
#pragma unroll
      for (int line = 0; line < C::kTileK; line += ByFree::kStep) {
        if (C::kTileK % ByFree::kStep != 0 && ByFree::line() + line >= C::kTileK) break;
        constexpr int kPerGranule = ByFree::kStep > kGranule ? ByFree::kStep : kGranule;
        const char* from =
            from_ + found.at[line / kPerGranule] + 2 * (line % kGranule) * operand_.k_stride;
        copy_async(to + line * line_bytes(kFree), from, ByFree::line() + line < k_left ? bytes : 0);
      }
    }
  }

  /// To the tile beside it.
  __device__ __forceinline__ void advance() {
    from_ += 2 * kFree * operand_.free_stride;
    count_ -= kFree;
  }

 private:
  __device__ __forceinline__ bool by_k() const {
    return kMajor == Major::any ? operand_.k_inner : kMajor == Major::k;
  }
  __device__ __forceinline__ static int clamp_to_unit(std::int32_t count) {
    return max(0, min(8, count));
  }

  /// Any strides.
  __device__ __forceinline__ void copy_by_element(std::uint32_t to, const std::int64_t* places,
                                                  std::int32_t k_left) const {
    constexpr int kUnits = C::kTileK / 8;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kFree * kUnits; i += C::kThreads) {
      const int unit = i % kUnits, line = i / kUnits;
      const std::int32_t left = line < count_ ? k_left - 8 * unit : 0;
      const auto* from = reinterpret_cast<const std::uint16_t*>(from_ + places[unit / 2 * 2]) +
                         line * operand_.free_stride + unit % 2 * 8 * operand_.k_stride;
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
  std::int32_t count_;
  const char* from_;
};

}  // namespace sparsek::bsr::wmma
