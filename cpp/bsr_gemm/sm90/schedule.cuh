#pragma once

#include <cstdint>

#include "bsr_gemm/sm90/params.h"

namespace sparsek::bsr::sm90 {

// Persistent workers finish together where rows are of unequal length: each tile goes to the worker
// that is free first, and a long tile starts nearly as long before its panel's turn as it takes, so
// that none is left for the end.

constexpr int kScheduledTiles = 4096, kMostPanels = 32, kScheduledGroups = 1024, kMostWorkers = 256;
constexpr int kScheduleThreads = 256;
constexpr int kMostCost = 1 << 14;  // of a tile: sums stay below 2^24, beside a worker's number

struct ScheduleArrays {
  std::int32_t* begins;
  std::int32_t* tiles;
};

/// Panels that a schedule of so many groups is made for; 0: none is made.
constexpr std::int32_t scheduled_panels(std::int64_t groups, int workers) {
  if (groups < 2 || groups > kScheduledGroups || workers < 32 || workers > kMostWorkers) return 0;
  const std::int64_t most = kScheduledTiles / groups;
  const std::int64_t panels = most < kMostPanels ? most : kMostPanels;
  return groups * panels < 8 * workers ? 0 : static_cast<std::int32_t>(panels);
}

/// One CTA. `fixed`: what a tile takes besides its list, in entries of it. Of the panels
/// 1 << log2_abreast are walked at a time.
__global__ void __launch_bounds__(kScheduleThreads)
    schedule_kernel(const RowGroup* groups, std::int32_t num_groups, std::int32_t panels,
                    int log2_abreast, std::int32_t workers, float fixed, ScheduleArrays out) {
  __shared__ std::int32_t cost[kScheduledGroups];
  __shared__ std::int32_t order[kScheduledTiles];
  __shared__ std::uint8_t owner[kScheduledTiles];
  __shared__ std::int32_t count[kMostWorkers];
  __shared__ std::int32_t sum;
  const int thread = threadIdx.x;
  const std::int32_t num_tiles = num_groups * panels;
  if (thread == 0) sum = 0;
  __syncthreads();
  const float most = groups[0].length + fixed;  // the longest comes first
  for (int rank = thread; rank < num_groups; rank += kScheduleThreads) {
    cost[rank] = max(1, static_cast<int>((groups[rank].length + fixed) / most * kMostCost));
    atomicAdd(&sum, cost[rank]);
  }
  __syncthreads();

  // Rows of about equal length are dealt.
  if (cost[0] < 1.25f * sum / num_groups) {
    for (int i = thread; i <= workers; i += kScheduleThreads) out.begins[i] = kDealt;
    return;
  }

  // A tile comes where its panels' turn * sum - cost * lead says, of equal ones the first; the last
  // two turns are one. With a longer lead, or more of them in one, less is found in L2.
  const int turn = sum << log2_abreast, lead = workers * 7 / 8;
  const int last_turn = max(0, ((panels - 1) >> log2_abreast) - 1);
  for (int tile = thread; tile < num_tiles; tile += kScheduleThreads) {
    const int panel = tile / num_groups, rank = tile % num_groups;
    const int turns = min(panel >> log2_abreast, last_turn);
    int place = panel - (turns << log2_abreast);
    for (int other = 0; other < num_groups; ++other) {
      const int ahead = (cost[other] - cost[rank]) * lead;
      // The turns whose tiles of that rank come before.
      int before = turns + ahead / turn;
      const bool exact = ahead % turn == 0;
      if (ahead > 0 && !exact) ++before;
      if (exact && other < rank) ++before;
      place += before > last_turn ? panels : max(before, 0) << log2_abreast;
    }
    order[place] = tile;
  }
  __syncthreads();

  if (thread < 32) {
    constexpr int kOfLane = kMostWorkers / 32;
    std::uint32_t busy[kOfLane];  // until when, and whose: worker lane + 32 i
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int worker = thread + 32 * i;
      busy[i] = worker < workers ? worker : 0xffffffffu;
    }
    for (int i = 0; i < num_tiles; ++i) {
      std::uint32_t first = busy[0];
#pragma unroll
      for (int j = 1; j < kOfLane; ++j) first = min(first, busy[j]);
      first = __reduce_min_sync(0xffffffffu, first);
      const std::uint32_t until =
          first + (static_cast<std::uint32_t>(cost[order[i] % num_groups]) << 8);
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) {
        if (busy[j] == first) busy[j] = until;
      }
      if (thread == 0) owner[i] = static_cast<std::uint8_t>(first & 255);
    }
  }
  __syncthreads();

  if (thread < workers) {
    int mine = 0;
    for (int i = 0; i < num_tiles; ++i) mine += owner[i] == thread;
    count[thread] = mine;
  }
  __syncthreads();
  if (thread < workers) {
    int at = 0;
    for (int worker = 0; worker < thread; ++worker) at += count[worker];
    out.begins[thread] = at;
    if (thread == workers - 1) out.begins[workers] = at + count[thread];
    for (int i = 0; i < num_tiles; ++i) {
      if (owner[i] == thread) out.tiles[at++] = order[i];
    }
  }
}

}  // namespace sparsek::bsr::sm90
