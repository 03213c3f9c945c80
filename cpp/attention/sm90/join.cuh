#pragma once

#include <cutlass/arch/barrier.h>

#include "attention/sm90/epilogue.cuh"

namespace sparsek::attn::sm90 {

/// What the consumers of two teams that have seen different keys of a q tile leave for each other.
template <class C>
struct Exchange {
  static constexpr int kOutputs = C::kValueDim / 4;  // of a thread and row
  struct Row {
    float output[kOutputs][kWarpGroup];
    float max[kWarpGroup];
    float sum[kWarpGroup];
  };
  Row rows[C::kAllConsumers];
};

/// Gives row 1 - r of this thread's two to the thread in its place in the other team, whose row r
/// it gets, and writes row r of all keys.
template <class Element, class C, int r, class Accumulator>
__device__ __forceinline__ void join(const Params& params, Exchange<C>& exchange, const Work& work,
                                     int tile_row, Accumulator& output, RowSoftmax& softmax) {
  using cutlass::arch::NamedBarrier;
  constexpr int kOutputs = Exchange<C>::kOutputs, kOther = 1 - r;
  const auto at = [](int i, int row) { return i / 2 * 4 + 2 * row + i % 2; };
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup % C::kConsumers;
  auto& given = exchange.rows[kOther * C::kConsumers + group];
  const auto& got = exchange.rows[r * C::kConsumers + group];
  CUTE_UNROLL
  for (int i = 0; i < kOutputs; ++i) given.output[i][thread] = output(at(i, kOther));
  given.max[thread] = softmax.seen(kOther).max;
  given.sum[thread] = softmax.seen(kOther).sum;
  NamedBarrier::sync(2 * kWarpGroup, kJoin<C> + group);
  const auto factors = softmax.join(r, {got.max[thread], got.sum[thread]});
  CUTE_UNROLL
  for (int i = 0; i < kOutputs; ++i) {
    float& value = output(at(i, r));
    value = value * factors.own + got.output[i][thread] * factors.other;
  }
  NamedBarrier::sync(2 * kWarpGroup, kJoin<C> + group);  // the next q tile's may be left
  const Destination to = destination_of<C>(params, work, tile_row);
  write_row<Element, C::kValueDim, r>(to.out, to.lse, to.work, tile_row, to.end, output, softmax);
}

}  // namespace sparsek::attn::sm90
