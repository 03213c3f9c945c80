#pragma once

#include <cstdint>

namespace sparsek::attn::sm90 {

constexpr int kWarpGroup = 128;
constexpr int kGranule = 16;  // keys: the smallest kv_block, and the unit of a tile's notes

/// Everything that is fixed when a kernel is compiled.
///   head_dim, value_dim   of the tiles; smaller ones are filled with zeros by TMA
///   tile_q, tile_kv       queries of a tile (64 for each consumer warpgroup), keys of a step
///   stages                of V, and of K unless stages_k says fewer
///   lists                 can follow block lists
///   ctas_per_sm           decides the registers of a thread
///   overlap               P V of one tile is multiplied under the softmax of the next, which a
///                         single CTA on an SM needs; with several, their warpgroups fill each
///                         other's gaps, and the registers buy more of them
///   teams                 q tiles that a CTA works at, each with a producer warp, consumers and
///                         a list of its own: as several CTAs, but for the producers' registers
///   packs                 the rows of a q tile may be packed heads (rows.h), and CTAs may share
///                         its keys (shares.h), which with lists all kernels can
///   joins                 both teams work at one q tile, each at half of its keys, and join what
///                         they have (join.cuh)
///   free                  each consumer warpgroup has its rows of Q to itself: none waits for
///                         another between two q tiles. Without lists they take no turns at the
///                         tensor cores either; with them, whether a score is too large is asked of
///                         the weights (Consumer::take_weights), and turns are worth their cost
template <int HeadDim, int ValueDim, int TileQ, int TileKv, int Stages, bool Lists,
          int CtasPerSm = 1, bool Overlap = CtasPerSm == 1, int Teams = 1, int StagesK = Stages,
          bool Packs = false, bool Joins = false, bool Free = false>
struct Config {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kValueDim = ValueDim;
  static constexpr int kTileQ = TileQ;
  static constexpr int kTileKv = TileKv;
  static constexpr int kStages = Stages;
  static constexpr int kStagesK = StagesK;
  static constexpr bool kLists = Lists;
  static constexpr int kCtasPerSm = CtasPerSm;
  static constexpr bool kOverlap = Overlap;
  static constexpr bool kAsksWeights = Free && Lists;
  // Turns at the tensor cores.
  static constexpr bool kPingPong = Overlap && TileQ > 64 && (Lists || !Free);

  static constexpr bool kPacks = Packs;
  static constexpr bool kShares = Lists || Packs;
  static constexpr int kTeams = Teams;
  static constexpr bool kJoins = Joins;
  static constexpr int kTilesAtATime = Joins ? 1 : Teams;
  static constexpr int kConsumers = TileQ / 64;             // warpgroups of a team
  static constexpr int kAllConsumers = kConsumers * Teams;  // of the CTA
  static constexpr int kPartsQ = Free ? kConsumers : 1;     // of Q, loaded one by one
  static constexpr int kRowsOfPart = TileQ / kPartsQ;
  // setmaxnreg moves registers from a whole warpgroup of producers to the consumers. Where they do
  // not need them, a lone warp leaves more.
  static constexpr bool kMoveRegs = kAllConsumers > 1;
  // A warp beside the producer's finds the next q tile. Two teams fill each other's gaps anyway.
  static constexpr bool kScouts = Lists && kMoveRegs && Teams == 1;
  static constexpr int kThreads = kAllConsumers * kWarpGroup + (kMoveRegs ? kWarpGroup : 32);
  // The last warpgroup may see nothing of a q tile's first keys (window), and leaves them out where
  // it has no turns to keep, nor O's place among the stages.
  static constexpr bool kHides = Free && !Lists && TileKv <= TileQ - 64;
  static constexpr bool kKeepsStep = !Lists && !Packs && !Joins;  // keep_together.cuh
  static constexpr int kGranules = TileKv / kGranule;
  static constexpr int kNotedGranules = Lists ? kGranules : 1;  // elsewhere the others follow

  // Columns of one TMA box: a swizzle row of 128 bytes, or of 64 where 64 does not divide.
  static constexpr int kSlabK = HeadDim % 64 == 0 ? 64 : 32;
  static constexpr int kSlabV = ValueDim % 64 == 0 ? 64 : 32;

  // Registers at launch are 65536 / (threads * ctas), in steps of 8; setmaxnreg moves those that
  // the producer does not need to the consumers.
  static constexpr int kLaunchRegs = 65536 / (kThreads * CtasPerSm) / 8 * 8;
  static constexpr int kProducerRegs = !kShares ? 32 : Teams == 1 && !kScouts ? 72 : 56;
  static constexpr int kConsumerRegsMax =
      kMoveRegs ? (kLaunchRegs * (kAllConsumers + 1) - kProducerRegs) / kAllConsumers / 8 * 8
                : kLaunchRegs;
  static constexpr int kConsumerRegs = kConsumerRegsMax > 240 ? 240 : kConsumerRegsMax;

  // TMA stores O from shared memory: from a place of its own, if the rings and what else a team
  // has there (less than 3 KB) leave room, or from a stage of V that the ring leaves out behind a q
  // tile.
  static constexpr bool kStoresTiles = Overlap && !Packs && !Joins;
  static constexpr int kBytesOfRings =
      2 * (TileQ * HeadDim + TileKv * (StagesK * HeadDim + Stages * ValueDim));
  static constexpr int kBytesOfOut = 2 * TileQ * ValueDim;
  static constexpr bool kBuffersOut =
      kStoresTiles && (kBytesOfRings + kBytesOfOut + 3072) * Teams * CtasPerSm <= 226 * 1024;
  static constexpr bool kStagesOut =
      kStoresTiles && !kBuffersOut && !Lists && Stages > 2 && TileKv >= TileQ;
  static constexpr bool kStoresByTma = kBuffersOut || kStagesOut;

  static_assert(TileQ % 64 == 0 && TileKv % kGranule == 0 && TileKv <= 256);
  static_assert(StagesK <= Stages && (StagesK == Stages || Overlap));
  static_assert(kGranules <= 32, "one lane of the producer for each granule");
  static_assert(!Joins || (Teams == 2 && !kShares));
  static_assert(!Free || (Overlap && !Packs));
  static_assert(!kHides || !kStagesOut);
};

/// Named barriers; 0 is __syncthreads.
enum NamedBarrier : int { kTurn = 1 };  // kTurn + i: consumer i's turn at the tensor cores

/// A rescale of the output is put off until a row's maximum has grown by this power of two: the
/// final division by the row's sum makes it exact, and 2^8 is far from float16's 65504.
constexpr float kRescaleThreshold = 8.0f;

}  // namespace sparsek::attn::sm90
