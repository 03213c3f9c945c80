#pragma once

#include <cstdint>

namespace sparsek::bsr::sm90 {

// A tile of the result is (rows of the sparse operand, columns of the dense one), whichever side of
// the product each is on.
constexpr int kTileRows = 128;
constexpr int kTileK = 64;
constexpr int kConsumerGroups = 2;  // warp groups that multiply
constexpr int kGroupRows = 64;      // rows of the tile that each one takes: those of one WGMMA
static_assert(kGroupRows * kConsumerGroups == kTileRows);
// Named barriers besides those of the consumer groups, 1 + group.
constexpr int kConsumersBarrier = 1 + kConsumerGroups;
/// Of KTiles::mask_of: the first group has work in all of a stage.
constexpr std::uint32_t kWholeStage = 0x55;
/// What stands in place of a stage's mask where the walk over k has ended, which the consumers do
/// not know beforehand where both operands are sparse.
constexpr std::uint32_t kEndOfTile = 1u << 31;
/// Beside the mask of a tile's last stage, where many tiles go through the stages, and in place of
/// one behind the last tile.
constexpr std::uint32_t kLastOfTile = 1u << 30, kEndOfTiles = 1u << 29;
constexpr int kMostParts = 8;  // CTAs of a cluster that share a tile, and those of which the sums
constexpr int kMostPartsDeep = 2;  // fit beside the stages where these take what an SM has
// A tile of a sampled product has up to three units of columns. Whatever it has, a piece of 64 of k
// of a unit or of the rows is as large, and a stage one piece more than its units.
constexpr int kSampledUnit = 128, kMostSampledUnits = 3;
static_assert(kSampledUnit == kTileRows);
constexpr int kSampledPieces = 12;  // that there is room for: 3, 4 or 6 stages

/// Which axis of an operand is contiguous in memory: k, or the rows of the sparse operand and the
/// columns of the dense one.
enum class Major : std::uint8_t { k, free };

/// What a kernel multiplies.
///   one_sparse   a sparse operand and a dense one
///   long_rows    the same, where CTAs may share the tiles of a long row
///   both_sparse  two sparse ones: the k blocks that a group of rows and a group of columns share
///   sampled      two dense ones, at the blocks of a pattern: the rows of a tile lie beside each
///                other, its columns are those of blocks from anywhere in the row
enum class Kind : std::uint8_t { one_sparse, long_rows, both_sparse, sampled };

/// Everything that is decided at compile time. "Sparse" is the operand along a tile's rows, "dense"
/// the one along its columns, whatever they are.
/// kInner: contiguous elements of a block that are taken at once, 16, 32 or 64.
template <class Element_, Major kSparse_, Major kDense_, int kInner_, int kTileCols_, int kStages_,
          Kind kKind_ = Kind::one_sparse>
struct Config {
  using Element = Element_;
  static constexpr Major kSparse = kSparse_;
  static constexpr Major kDense = kDense_;
  static constexpr int kInner = kInner_;
  static constexpr int kTileCols = kTileCols_;
  static constexpr int kStages = kStages_;
  static constexpr Kind kKind = kKind_;
  static constexpr bool kLongRows = kKind == Kind::long_rows;
  static constexpr bool kOneSparse = kKind == Kind::one_sparse || kLongRows;
  static constexpr bool kBothSparse = kKind == Kind::both_sparse;
  // A CTA for each tile. Two on an SM: where the walks over k are short one CTA multiplies while
  // the other stores, and where there are few tiles both load. With more stages, one.
  static constexpr bool kOneTile = kBothSparse || kTileCols < 256;
  // CTAs of a cluster may share the walk over k of a tile.
  static constexpr bool kParts = kOneTile && !kBothSparse;
  // Launched before the kernel ahead of it has ended: few columns take little longer than that.
  static constexpr bool kEarlyStart = kParts;
  static constexpr int kCtasPerSm = kOneTile && kStages <= 4 ? 2 : 1;
  static constexpr int kMostParts = kCtasPerSm == 1 ? kMostPartsDeep : sm90::kMostParts;
  // Two sparse operands leave the loading to one warp, without setmaxnreg: of what that would give
  // the compiler does not make use.
  static constexpr int kProducerThreads = kBothSparse ? 32 : 128;
  static constexpr int kThreads = 128 * kConsumerGroups + kProducerThreads;
  // What the compiler is told: a quarter of an SM holds the registers of whole warps only, so that
  // 9 warps of two CTAs may have no more than 10 would.
  static constexpr int kBoundThreads = kBothSparse ? 320 : kThreads;
  // TMA takes as long for a line of 32 bytes as for one of 128: the smallest blocks go by cp.async.
  static constexpr bool kSparseByTma = kInner > 16 || !kOneSparse;
  // Nor need a line of 128 bytes be one of a block's: it may be two (Params::folded).
  static constexpr bool kMayFold = kOneSparse && kSparse == Major::k && kInner == 32;
  // And as long for a box of zeros as for a block: where some of a warp group's rows have none, the
  // producer's threads write zeros.
  static constexpr bool kZerosByThreads = kOneSparse && kCtasPerSm == 1 && kInner == 32;
  static constexpr int kArrivals = kSparseByTma ? 1 : 129;  // at a stage
  static constexpr int kStagedCols = 64;                    // of results in float32, at a time
  // Of which a thread takes so many at once, as it has registers for.
  static constexpr int kFoursAtOnce = kBothSparse || kKind == Kind::sampled ? 2 : 4;
  // See Tiles; with smaller blocks it was measured to be slower.
  static constexpr bool kEvenTiles = kInner == 64;
  // Of one thread; they add up to what a launch gets, where registers are dealt out.
  static constexpr int kProducerRegisters = kBothSparse || kKind == Kind::sampled ? 40
                                            : kLongRows                           ? 72
                                                                                  : 56;
  static constexpr int kConsumerRegisters =
      ((kCtasPerSm == 2 ? 3 * 80 : 3 * 168) - kProducerRegisters) / 2 / 8 * 8;
};

}  // namespace sparsek::bsr::sm90
