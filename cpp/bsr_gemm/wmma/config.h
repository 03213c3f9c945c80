#pragma once

#include <cstdint>

namespace sparsek::bsr::wmma {

constexpr int kGranule = 16;  // of k: the smallest block, and the depth of one MMA

/// Which axis of an operand is contiguous in memory, k or the other one; any: known when the kernel
/// runs.
enum class Major : std::uint8_t { k, free, any };

/// Everything that is fixed when a kernel is compiled.
///   tile_rows, tile_cols, tile_k   what a CTA multiplies at once
///   warps_in_rows, warps_in_cols   how its warps divide the tile
///   stages                         of shared memory
///   ctas_per_sm                    decides the registers of a thread
///   runs                           a CTA multiplies several tiles, one after the other
template <int TileRows, int TileCols, int TileK, int WarpsInRows, int WarpsInCols, int Stages,
          int CtasPerSm, bool Runs = false>
struct Config {
  static constexpr int kTileRows = TileRows;
  static constexpr int kTileCols = TileCols;
  static constexpr int kTileK = TileK;
  static constexpr int kWarpsInCols = WarpsInCols;
  static constexpr int kStages = Stages;
  static constexpr int kCtasPerSm = CtasPerSm;
  static constexpr bool kRuns = Runs;

  static constexpr int kThreads = 32 * WarpsInRows * WarpsInCols;
  static constexpr int kWarpRows = TileRows / WarpsInRows;
  static constexpr int kWarpCols = TileCols / WarpsInCols;
  static constexpr int kGranules = TileK / kGranule;

  static_assert(kWarpRows % 16 == 0 && kWarpCols % 16 == 0);
  static_assert(kGranules % 2 == 0, "fragments take turns in two sets of registers");
};

/// A line of shared memory holds so many elements, and 16 bytes more, so that the eight lines that
/// an ldmatrix reads at once begin in different banks.
constexpr int line_bytes(int elements) { return elements * 2 + 16 + (elements % 16 == 0 ? 0 : 16); }

/// Of one operand's part of a stage, whichever of its axes is contiguous.
constexpr int operand_bytes(int free, int k) {
  const int by_k = free * line_bytes(k);
  const int by_free = k * line_bytes(free);
  return by_k > by_free ? by_k : by_free;
}

constexpr int kQueueGranules = 512;  // of k, whose places are known at once

// A CTA multiplies so many tiles beside each other that it has at most this much of k to go
// through: more would leave others without work where lists are unequal. It fits in the queue.
constexpr int kRunK = 8192;
constexpr int kMostRun = 4;  // a power of two
static_assert(kRunK <= kQueueGranules * kGranule);

template <class C>
constexpr int smem_bytes_of() {
  return C::kStages *
             (operand_bytes(C::kTileRows, C::kTileK) + operand_bytes(C::kTileCols, C::kTileK)) +
         kQueueGranules * 16 + 640;
}

// What a block may use (sharedMemPerBlockOptin) on sm_86 and sm_89, the least of all chips from
// sm_80 on, and on sm_90. sm_80 has 163 KB.
constexpr int kLeastSmemBytes = 99 * 1024;
constexpr int kHopperSmemBytes = 227 * 1024;

}  // namespace sparsek::bsr::wmma
