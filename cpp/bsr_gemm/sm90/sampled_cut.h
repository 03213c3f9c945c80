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
/// told of each width's, from the widest on. Tiles so few that half of the CTAs or more would have
/// none are shared, several CTAs to the walk over k of each, where that takes less time.
struct SampledRounds {
  std::int32_t ctas;
  std::int32_t steps;                 // K tiles
  std::int32_t most_parts;            // of a tile
  std::int32_t row_units, col_units;  // of both operands
  std::int32_t tiles = 0, rounds = 0;
  int widest = 0;
  std::int64_t whole_cost = 0;

  __host__ __device__ constexpr void add(std::int32_t more, int width) {
    tiles += more;
    const std::int32_t before = rounds;
    rounds = (tiles + ctas - 1) / ctas;
    whole_cost += std::int64_t{rounds - before} * (4 * width + 1) * steps;
    if (before == 0 && rounds > 0) widest = width;
  }

  /// CTAs that share each tile.
  __host__ __device__ constexpr std::int32_t parts() const {
    const std::int32_t fit = tiles > 0 ? ctas / tiles : 1;
    const std::int32_t parts = fit < most_parts ? fit : most_parts;
    return parts > 1 && cost_of_parts(parts) < cost_of_parts(1) ? parts : 1;
  }

  /// In quarters of a K tile of a unit. A round takes a quarter of a unit beside its units.
  __host__ __device__ constexpr std::int64_t cost() const {
    return parts() > 1 ? 4 * cost_of_parts(parts()) + steps : whole_cost;
  }

  /// Into how many parts a tile may be cut.
  __host__ __device__ static constexpr std::int32_t most_parts_of(std::int32_t steps) {
    return steps < 2 * kStepsOfSums ? 1 : steps / kLeastSteps;
  }

 private:
  // Measured at 8192^3. To leave the sums of a unit and to add them takes as long as so many K
  // tiles of it, and while a unit is multiplied, memory gives all CTAs so many units of the
  // operands.
  static constexpr std::int32_t kStepsOfSums = 16, kUnitsRead = 107;
  static constexpr std::int32_t kLeastSteps = 8;  // of a part

  /// In K tiles of a unit: the widest tile's, or what has to be read, and the sums.
  __host__ __device__ constexpr std::int64_t cost_of_parts(std::int32_t parts) const {
    const std::int64_t work = std::int64_t{widest} * ((steps + parts - 1) / parts);
    const std::int32_t rows = tiles < row_units ? tiles : row_units;
    const std::int32_t cols = widest * tiles < col_units ? widest * tiles : col_units;
    const std::int64_t reading = std::int64_t{rows + cols} * steps / kUnitsRead;
    return (work > reading ? work : reading) + (parts > 1 ? widest * kStepsOfSums : 0);
  }
};

}  // namespace sparsek::bsr::sm90
