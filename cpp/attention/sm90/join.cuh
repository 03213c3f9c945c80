#pragma once

#include "attention/sm90/epilogue.cuh"
#include "primitives/mbarrier.cuh"

namespace sparsek::attn::sm90 {

/// What the consumers of two teams that have seen different keys of a q tile leave for each other.
template <class C>
struct Exchange {
  static constexpr int kWarps = 4 * C::kConsumers;   // of a team
  static constexpr int kOutputs = C::kValueDim / 4;  // of a thread and row
  struct Row {
    float output[kOutputs][kWarpGroup];
    float max[kWarpGroup];
    float sum[kWarpGroup];
  };
  Row rows[C::kAllConsumers];
  // Of a warp and the one in its place in the other team: full when both have left their rows,
  // empty when both have taken theirs. Named barriers of both teams' warpgroups would do too, but
  // racecheck does not follow those.
  Ring<1> rings[kWarps];

  __device__ __forceinline__ void init() {
    for (Ring<1>& ring : rings) ring.init(2 * 32, 2 * 32);
  }
};

/// Gives row 1 - r of this thread's two to the thread in its place in the other team, whose row r
/// it gets, and writes row r of all keys.
template <class Element, class C, int r, class Accumulator>
__device__ __forceinline__ void join(const Params& params, Exchange<C>& exchange, const Work& work,
                                     const RingState<1>& tile, int tile_row, Accumulator& output,
                                     RowSoftmax& softmax) {
  constexpr int kOutputs = Exchange<C>::kOutputs, kOther = 1 - r;
  const auto at = [](int i, int row) { return i / 2 * 4 + 2 * row + i % 2; };
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup % C::kConsumers;
  auto& given = exchange.rows[kOther * C::kConsumers + group];
  const auto& got = exchange.rows[r * C::kConsumers + group];
  Ring<1>& ring = exchange.rings[group * 4 + thread / 32];
  wait_as_warp(ring.empty, tile.phase() ^ 1);  // of what was left of the tile before
  CUTE_UNROLL
  for (int i = 0; i < kOutputs; ++i) given.output[i][thread] = output(at(i, kOther));
  given.max[thread] = softmax.seen(kOther).max;
  given.sum[thread] = softmax.seen(kOther).sum;
  ring.arrive_full(tile);
  wait_as_warp(ring.full, tile.phase());
  const auto factors = softmax.join(r, {got.max[thread], got.sum[thread]});
  CUTE_UNROLL
  for (int i = 0; i < kOutputs; ++i) {
    float& value = output(at(i, r));
    value = value * factors.own + got.output[i][thread] * factors.other;
  }
  ring.arrive_empty(tile);
  write_row<Element, C::kValueDim, r>(params.out, params.lse, work, tile_row, params.q_len, output,
                                      softmax);
}

}  // namespace sparsek::attn::sm90
