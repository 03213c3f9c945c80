#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sparsek::bsr::sm90 {

/// A point of the walk over the lists of all tiles: panels of columns one after the other, in each
/// the groups of rows in their own order.
struct Place {
  std::int32_t panel = 0, group = 0;
  std::int32_t entry = 0;  // of the group's list
};

/// The walk, cut into a stretch of equal work for each worker wherever that is, for rows so long
/// that one of their tiles would take a worker longer than its share of everything. Stream-K
/// (Osama et al., Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
/// Multiplication on the GPU, PPoPP 2023), with lists of blocks for its K.
struct Stretches {
  const std::int64_t* begins;  // entries of each group, and behind them the last one's end
  std::int32_t num_groups;
  std::int32_t panels;
  std::int32_t workers;
  int log2_block_k;

  /// What a tile takes besides its list, in entries: storing it takes as long as a list over 256 of
  /// k.
  __host__ __device__ static std::int64_t fixed(int log2_block_k) { return 256 >> log2_block_k; }

  __host__ __device__ std::int64_t of_panel() const {
    return begins[num_groups] + num_groups * fixed(log2_block_k);
  }

  /// Whether a tile of so much work, among `all`, is worth more than one worker: leaving sums and
  /// adding them takes some time too.
  __host__ __device__ static bool is_long(std::int64_t tile, std::int64_t all,
                                          std::int64_t workers) {
    return 4 * tile > 5 * (all / workers);
  }

  /// Whether a tile of a list so long is.
  __host__ __device__ bool needed(std::int64_t longest) const {
    return is_long(longest + fixed(log2_block_k), of_panel() * panels, workers);
  }

  /// Where a stretch begins, and the one before it ends. Two neighbours in one list are never the
  /// same place: a share is at least the fixed work of a tile.
  __host__ __device__ Place begin(std::int32_t stretch) const {
    if (stretch >= workers) return {panels, 0, 0};
    const std::int64_t all = of_panel();
    const std::int64_t at = all * panels * stretch / workers;
    const std::int64_t in_panel = at % all;
    Place place{static_cast<std::int32_t>(at / all), 0, 0};
    std::int32_t end = num_groups;  // the last group that begins no later
    while (end - place.group > 1) {
      const std::int32_t middle = place.group + (end - place.group) / 2;
      (place_of(middle) <= in_panel ? place.group : end) = middle;
    }
    // Whole K tiles, and no part that costs more than it saves.
    const std::int64_t length = begins[place.group + 1] - begins[place.group];
    const std::int64_t step = log2_block_k < 6 ? 64 >> log2_block_k : 1;
    const std::int64_t least = 512 >> log2_block_k;
    const std::int64_t entry = (in_panel - place_of(place.group)) / step * step;
    if (entry >= least && entry + least <= length) {
      place.entry = static_cast<std::int32_t>(entry);
    } else if (entry >= least) {
      next(&place);
    }
    return place;
  }

  /// To the next tile's begin.
  __host__ __device__ void next(Place* place) const {
    place->entry = 0;
    if (++place->group == num_groups) {
      place->group = 0;
      ++place->panel;
    }
  }

  /// How many stretches begin inside a tile's list, from one on.
  __host__ __device__ std::int32_t count_inside(const Place& tile, std::int32_t first) const {
    std::int32_t stretch = first;
    for (; stretch < workers; ++stretch) {
      const Place place = begin(stretch);
      if (place.panel != tile.panel || place.group != tile.group || place.entry == 0) break;
    }
    return stretch - first;
  }

 private:
  __host__ __device__ std::int64_t place_of(std::int32_t group) const {
    return begins[group] + group * fixed(log2_block_k);
  }
};

}  // namespace sparsek::bsr::sm90
