#pragma once

#include <cstdint>

namespace sparsek::bsr::sm90 {

// A tile of the result is (rows of the sparse operand, columns of the dense one), whichever side of
// the product each is on.
constexpr int kTileRows = 128;
constexpr int kTileK = 64;
constexpr int kConsumerGroups = 2;  // warp groups that multiply
constexpr int kGroupRows = 64;      // rows of the tile that each one takes: those of one WGMMA
constexpr int kThreads = 128 * (kConsumerGroups + 1);
static_assert(kGroupRows * kConsumerGroups == kTileRows);

/// Which axis of an operand is contiguous in memory: k, or the rows of the sparse operand and the
/// columns of the dense one.
enum class Major : std::uint8_t { k, free };

/// Everything that is decided at compile time.
/// kInner: contiguous elements of a block that are taken at once, 16, 32 or 64.
template <class Element_, Major kSparse_, Major kDense_, int kInner_, int kTileCols_, int kStages_>
struct Config {
  using Element = Element_;
  static constexpr Major kSparse = kSparse_;
  static constexpr Major kDense = kDense_;
  static constexpr int kInner = kInner_;
  static constexpr int kTileCols = kTileCols_;
  static constexpr int kStages = kStages_;
  // TMA takes as long for a line of 32 bytes as for one of 128: the smallest blocks go by cp.async.
  static constexpr bool kSparseByTma = kInner > 16;
  // Of one thread; they add up to what a launch of kThreads gets.
  static constexpr int kProducerRegisters = kSparseByTma ? 40 : 56;
  static constexpr int kConsumerRegisters = kSparseByTma ? 232 : 224;
};

}  // namespace sparsek::bsr::sm90
