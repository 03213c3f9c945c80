#pragma once

#include <cstdint>

namespace sparsek::attn::wmma {

constexpr int kGranule = 16;  // keys: the unit of a tile's notes

/// Everything that is fixed when a kernel is compiled.
///   head_dim     of the tiles, for K and V alike; smaller ones are filled with zeros
///   fragments    16 queries each, of one warp: every one more halves what a product reads from
///                shared memory, and doubles the registers
///   warps        of a CTA
///   tile_kv      keys of a stage; there are two stages
///   step         keys whose scores a warp holds at once
///   q_in_regs    Q stays in registers
///   ctas_per_sm  decides the registers of a thread
template <int HeadDim, int Fragments, int Warps, int TileKv, int Step, bool QInRegs, int CtasPerSm>
struct Config {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kFragments = Fragments;
  static constexpr int kWarps = Warps;
  static constexpr int kTileKv = TileKv;
  static constexpr int kStep = Step;
  static constexpr bool kQInRegs = QInRegs;
  static constexpr int kCtasPerSm = CtasPerSm;
  // What changes from tile to tile leaves none for what does not.
  static constexpr bool kFewRegisters = !QInRegs;

  static constexpr int kThreads = 32 * Warps;
  static constexpr int kWarpRows = 16 * Fragments;
  static constexpr int kTileQ = kWarpRows * Warps;
  static constexpr int kGranules = TileKv / kGranule;
  static constexpr int kRowUnits = HeadDim / 8;  // of 16 bytes
  static constexpr int kStages = 2;

  static constexpr int kQBytes = kTileQ * HeadDim * 2;
  static constexpr int kTileBytes = TileKv * HeadDim * 2;  // of K, or of V
  static constexpr int kTilesBytes = kQBytes + 2 * kStages * kTileBytes;

  static_assert(HeadDim % 64 == 0 && TileKv % Step == 0 && Step % kGranule == 0);
  // Which granule of a tile a pass of its loads is in is known to the compiler.
  static_assert(kGranule % (kThreads / kRowUnits) == 0);
  static_assert(kThreads % kRowUnits == 0 && TileKv % (kThreads / kRowUnits) == 0);
  static_assert(kTileQ % (kThreads / kRowUnits) == 0);
};

/// Shared memory of a CTA: the tiles, the notes and the queue of storage.cuh.
template <class C>
constexpr int smem_bytes_of() {
  return C::kTilesBytes + 1024;
}

// What a block may use (sharedMemPerBlockOptin) on sm_86 and sm_89, the least of all chips from
// sm_80 on: 163 KB on sm_80, 227 KB on sm_90.
constexpr int kLeastSmemBytes = 99 * 1024;

/// A rescale of the output is put off until a row's maximum has grown by this power of two: the
/// final division by the row's sum makes it exact, and 2^8 is far from float16's 65504.
constexpr float kRescaleThreshold = 8.0f;

}  // namespace sparsek::attn::wmma
