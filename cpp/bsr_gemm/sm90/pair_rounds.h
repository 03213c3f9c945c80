#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sparsek::bsr::sm90 {

/// Which tiles a CTA computes where each slot of the chip takes CTAs one after the other, in order:
/// those of the first rounds take several, one tile of every `slots`, and the last ones one, so
/// that no slot is left with much more than the others. first, first + step, ... `count` of them.
struct PairRounds {
  std::int32_t first = 0, step = 1, count = 0;

  /// Of nine tenths of what is left, each slot's share.
  __host__ __device__ static std::int32_t count_of(std::int32_t left, std::int32_t slots) {
    return static_cast<std::int32_t>(std::int64_t{left} * 9 / (std::int64_t{slots} * 10));
  }

  __host__ __device__ static PairRounds of(std::int32_t cta, std::int32_t tiles,
                                           std::int32_t slots) {
    std::int32_t begin = 0;
    for (;;) {
      const std::int32_t count = count_of(tiles - begin, slots);
      if (count <= 1) return {begin + cta, 1, begin + cta < tiles ? 1 : 0};
      if (cta < slots) return {begin + cta, slots, count};
      cta -= slots;
      begin += count * slots;
    }
  }

  static std::int32_t num_ctas(std::int32_t tiles, std::int32_t slots) {
    std::int32_t begin = 0, ctas = 0;
    for (;;) {
      const std::int32_t count = count_of(tiles - begin, slots);
      if (count <= 1) return ctas + tiles - begin;
      ctas += slots;
      begin += count * slots;
    }
  }
};

}  // namespace sparsek::bsr::sm90
