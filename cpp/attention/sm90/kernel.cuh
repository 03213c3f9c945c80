#pragma once

// clang-format off
#include "primitives/driver_version.h"
// clang-format on

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/numeric_conversion.h>

#include "attention/sm90/epilogue.cuh"
#include "attention/sm90/join.cuh"
#include "attention/sm90/mainloop.cuh"
#include "attention/sm90/producer.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {

/// Zeros the rows of Q from `begin` on, which no load reaches: what lies there would decide with
/// the other rows of a warp when these are rescaled.
template <class Element, class C>
__device__ __forceinline__ void clear_rows(Storage<Element, C>& storage, int begin) {
  constexpr int kWords = C::kSlabK * sizeof(Element) / sizeof(uint4);  // of a slab's row
  auto* words = reinterpret_cast<uint4*>(storage.q);
  for (int i = begin * kWords + threadIdx.x; i < C::kTileQ * kWords; i += C::kThreads) {
    for (int slab = 0; slab < C::kHeadDim / C::kSlabK; ++slab) {
      words[slab * C::kTileQ * kWords + i] = uint4{};
    }
  }
  cutlass::arch::fence_view_async_shared();
}

/// Fused attention: one producer warpgroup (of which one warp for each team works, or two where a
/// scout finds its q tiles) and one consumer warpgroup for each 64 queries of a tile.
/// docs/attention_sm90.md draws the pipeline.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    attention_kernel(const __grid_constant__ Params params) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ char memory[];
  // Of the teams, and what they leave for each other where they join.
  auto* storages = reinterpret_cast<Storage<Element, C>*>(memory);
  auto& exchange = *reinterpret_cast<Exchange<C>*>(storages + C::kTeams);
  const int warp_group = cutlass::canonical_warp_group_idx();  // the last one is the producer

  if (threadIdx.x == 0) {
    for (int team = 0; team < C::kTeams; ++team) storages[team].init(C::kConsumers * 4);
    if constexpr (C::kJoins) exchange.init();
    cutlass::arch::fence_barrier_init();
  }
  if constexpr (C::kPacks) clear_rows(storages[0], params.rows.of_tile);
  __syncthreads();
  // The kernel that sets the progress lets this one come when all before it is complete, and is
  // waited for by those who ask for their second tile.
  if (params.schedule.progress == nullptr) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();

  if (warp_group == C::kAllConsumers) {
    if constexpr (C::kMoveRegs) cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegs>();
    const int warp = cutlass::canonical_warp_idx_sync() - C::kAllConsumers * 4;
    if (warp < C::kTeams) {
      Producer<Element, C>(params, storages[warp], warp).run();
    } else if (C::kScouts && warp < 2 * C::kTeams) {
      scout<Element, C>(params, storages[warp - C::kTeams], warp - C::kTeams);
    }
  } else {
    if constexpr (C::kMoveRegs) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegs>();
    const int team = C::kTeams == 1 ? 0 : warp_group / C::kConsumers;
    Consumer<Element, C> consumer(params, storages[team], warp_group);
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
        consumer.leave_out_tile();
        consumer.set_zero(output);
      }
      if constexpr (C::kJoins) {
        const RingState<1> tile(consumer.work_state());
        if (team == 0) {
          join<Element, C, 0>(params, exchange, work, tile, consumer.row(), output, softmax);
        } else {
          join<Element, C, 1>(params, exchange, work, tile, consumer.row(), output, softmax);
        }
      } else {
        store<Element, C>(params, work, consumer.row(), output, softmax, consumer.out_tile());
      }
      consumer.finish_work();
    }
    if constexpr (C::kStoresByTma) wait_for_tma_store();
  }
#endif
}

}  // namespace sparsek::attn::sm90
