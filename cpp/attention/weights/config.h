#pragma once

namespace sparsek::attn::weights {

constexpr int kTileKv = 64;  // of all kernels

/// Everything that is fixed when a kernel is compiled.
///   head_dim     of the tiles; smaller ones are filled with zeros
///   fragments    16 queries each, of one warp
///   ctas_per_sm  decides the registers of a thread
template <int HeadDim, int Fragments, int CtasPerSm>
struct Config {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kFragments = Fragments;
  static constexpr int kCtasPerSm = CtasPerSm;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpRows = 16 * Fragments;
  static constexpr int kTileQ = kWarpRows * kWarps;
  static constexpr int kTileKv = weights::kTileKv;
  static constexpr int kRowUnits = HeadDim / 8;  // of 16 bytes

  static constexpr int kQBytes = kTileQ * HeadDim * 2;
  static constexpr int kKBytes = kTileKv * HeadDim * 2;
};

using Config64 = Config<64, 2, 3>;
using Config128 = Config<128, 2, 2>;
using Config256 = Config<256, 1, 2>;

/// Keys whose blocks are looked up at once: with blocks of one key, as many entries.
constexpr int kWindow = 512;
static_assert(kWindow % kTileKv == 0);

/// How far from 1 the sum of a row's weights may be before they are made anew: what a
/// float16 next to 1 is rounded by at most.
constexpr float kSumTolerance = 1.0f / 2048;

}  // namespace sparsek::attn::weights
