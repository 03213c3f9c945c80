#pragma once

#include "bsr_gemm/sm90/layouts.cuh"

namespace sparsek::bsr::sm90 {

/// Stages of a sampled product, of as many pieces as its tiles have, the rows' first.
template <class C>
struct SampledStorage {
  using Element = typename C::Element;
  static constexpr int kPiece = kSampledUnit * kTileK;  // elements
  // Of those in a tile, those in a warp group's rows.
  static constexpr int kMostBlocks = kGroupRows / 16 * (C::kTileCols / 16);

  alignas(1024) unsigned char staging[kConsumerGroups][kStagingBytes];
  alignas(1024) Element ring[kSampledPieces][kPiece];
  alignas(8) std::uint64_t full[C::kStages];
  std::uint64_t empty[C::kStages];
  std::int32_t blocks[kConsumerGroups][kMostBlocks];  // of the tile that is stored

  __device__ unsigned char* staging_of(int group) { return staging[group]; }
};

}  // namespace sparsek::bsr::sm90
