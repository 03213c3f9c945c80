#pragma once

// clang-format off
#include "primitives/driver_version.h"
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // N of 80 and 176
// clang-format on

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/numeric_conversion.h>

#include "attention/sm90/epilogue.cuh"
#include "attention/sm90/mainloop.cuh"
#include "attention/sm90/producer.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Fused attention: one producer warpgroup (of which one warp works) and one consumer warpgroup for
/// each 64 queries of the tile. docs/attention_sm90.md draws the pipeline.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    attention_kernel(const __grid_constant__ Params params) {
  extern __shared__ char memory[];
  auto& storage = *reinterpret_cast<Storage<Element, C>*>(memory);
  const int warp_group = cutlass::canonical_warp_group_idx();  // the last one is the producer
  constexpr int kConsumerWarps = C::kConsumers * 4;

  if (threadIdx.x == 0) {
    storage.ring_k.init(1, kConsumerWarps);
    storage.ring_v.init(1, kConsumerWarps);
    storage.ring_q.init(1, kConsumerWarps);
    storage.ring_work.init(1, kConsumerWarps);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();

  if (warp_group == C::kConsumers) {
    if constexpr (C::kMoveRegs) cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegs>();
    if (threadIdx.x < C::kConsumers * kWarpGroup + 32) Producer<Element, C>(params, storage).run();
  } else {
    if constexpr (C::kMoveRegs) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegs>();
    Consumer<Element, C> consumer(params, storage, warp_group);
    consumer.begin();
    while (true) {
      const Work& work = consumer.next_work();
      if (work.state == Work::kEnd) break;
      typename Consumer<Element, C>::Accumulator output;
      RowSoftmax softmax(params);
      if (work.state == Work::kTiles) {
        consumer.compute(work, output, softmax);
        softmax.finish();
      } else {
        consumer.set_zero(output);
      }
      store<Element, C>(params, work, consumer.row(), output, softmax);
      consumer.finish_work();
    }
  }
}

}  // namespace sparsek::attn::sm90
