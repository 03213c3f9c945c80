#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sparsek::bsr::sm90 {

/// A group's units of columns, cut into tiles of `most`, and what is left into a narrower one.
struct SampledCut {
  int most;

  /// Of `width` units, where the group has so many.
  __host__ __device__ constexpr std::int32_t tiles(std::int32_t units, int width) const {
    return width == most ? units / most : units % most == width ? 1 : 0;
  }
  /// First unit of one of them, the index-th.
  __host__ __device__ constexpr std::int32_t first(std::int32_t units, int width,
                                                   std::int32_t index) const {
    return width == most ? index * most : units - width;
  }
};

/// What the tiles of all groups take, dealt in rounds of one for each CTA, the widest first. To be
/// told of each width's, from the widest on.
struct SampledRounds {
  std::int32_t ctas;
  std::int32_t tiles = 0, rounds = 0, cost = 0;

  /// A round takes a quarter of a unit beside its units: measured at 8192^3.
  __host__ __device__ constexpr void add(std::int32_t more, int width) {
    tiles += more;
    const std::int32_t before = rounds;
    rounds = (tiles + ctas - 1) / ctas;
    cost += (rounds - before) * (4 * width + 1);
  }
};

}  // namespace sparsek::bsr::sm90
