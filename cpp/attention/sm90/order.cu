#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/sm90/kernels.h"
#include "attention/sm90/schedule.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::attn::sm90 {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBuckets = 32;  // of lengths, the longest first

struct Counts {
  std::int32_t longest;
  std::int32_t shortest;
  std::int32_t bucket[kBuckets];        // where its next tile goes
  std::int32_t warp[kWarps][kBuckets];  // tiles of one warp in one bucket
};

/// Keys that a q tile has to read.
__device__ std::int32_t length_of(const Params& params, std::int32_t tile_q, std::int32_t place) {
  const QTile tile = tile_at(params.schedule, place);
  const std::int32_t q_begin = tile.q_tile * tile_q;
  const KeyRange visible = visible_keys(params.band, q_begin, min(q_begin + tile_q, params.q_len));
  const ListRange list =
      list_range(params.mask, params.lists.list_number(tile.batch, tile.head, tile.q_tile));
  const std::int64_t listed = (list.end - list.begin) * params.mask.kv_block;
  const std::int64_t seen = visible.end > visible.begin ? visible.end - visible.begin : 0;
  return static_cast<std::int32_t>(listed < seen ? listed : seen);
}

__device__ int bucket_of(std::int32_t length, std::int32_t longest) {
  if (longest == 0) return 0;
  return kBuckets - 1 - static_cast<int>(std::int64_t{length} * (kBuckets - 1) / longest);
}

/// A counting sort by one CTA, stable, so that tiles of equal length stay beside their neighbours.
/// Lists of about one length are left in order, which a look at them shows.
__global__ void __launch_bounds__(kThreads, 1)
    order_kernel(const __grid_constant__ Params params, std::int32_t tile_q, std::int32_t first) {
  __shared__ Counts counts;
  const Schedule& schedule = params.schedule;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const std::int32_t num_tiles = schedule.num_tiles;

  if (thread == 0) {
    counts.longest = 0;
    counts.shortest = 0x7fffffff;
  }
  if (thread < kBuckets) counts.bucket[thread] = 0;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();  // whose CTAs begin with their first tiles meanwhile
  __syncthreads();
  std::int32_t longest = 0;
  std::int32_t shortest = 0x7fffffff;
#pragma unroll 4
  for (std::int32_t place = thread; place < num_tiles; place += kThreads) {
    const std::int32_t length = length_of(params, tile_q, place);
    longest = max(longest, length);
    shortest = min(shortest, length);
  }
  longest = __reduce_max_sync(~0u, longest);
  shortest = __reduce_min_sync(~0u, shortest);
  if (thread % 32 == 0) {
    atomicMax(&counts.longest, longest);
    atomicMin(&counts.shortest, shortest);
  }
  __syncthreads();
  longest = counts.longest;
  const bool ordered = counts.shortest < longest - longest / 4;
  const bool together = schedule.together && counts.shortest >= longest - longest / 16;
  if (thread == 0) *schedule.progress = {first, ordered, together, 0, 0};
  if (!ordered) return;

  for (std::int32_t place = first + thread; place < num_tiles; place += kThreads) {
    atomicAdd(&counts.bucket[bucket_of(length_of(params, tile_q, place), longest)], 1);
  }
  __syncthreads();
  if (thread == 0) {
    std::int32_t sum = first;
    for (int b = 0; b < kBuckets; ++b) {
      const std::int32_t count = counts.bucket[b];
      counts.bucket[b] = sum;
      sum += count;
    }
  }
  for (std::int32_t begin = first; begin < num_tiles; begin += kThreads) {
    for (int i = thread; i < kWarps * kBuckets; i += kThreads) (&counts.warp[0][0])[i] = 0;
    __syncthreads();
    const std::int32_t place = begin + thread;
    const int bucket =
        place < num_tiles ? bucket_of(length_of(params, tile_q, place), longest) : kBuckets;
    const std::uint32_t same = __match_any_sync(~0u, bucket);
    const int rank = __popc(same & ((1u << thread % 32) - 1));
    if (bucket < kBuckets && rank == 0) counts.warp[warp][bucket] = __popc(same);
    __syncthreads();
    if (thread < kBuckets) {
      std::int32_t at = counts.bucket[thread];
      for (int w = 0; w < kWarps; ++w) {
        const std::int32_t count = counts.warp[w][thread];
        counts.warp[w][thread] = at;
        at += count;
      }
      counts.bucket[thread] = at;
    }
    __syncthreads();
    if (bucket < kBuckets) schedule.order[counts.warp[warp][bucket] + rank] = place;
    __syncthreads();
  }
}

__global__ void start_kernel(Progress* progress, std::int32_t first) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  *progress = {first, 1, 0, 0, 0};
}

}  // namespace

void start_tiles(Progress* progress, int first, cudaStream_t stream) {
  launch_dependent("attention sm90: start", start_kernel, 1, 1, 0, stream, progress, first);
}

void order_tiles(const Params& params, int tile_q, int first, cudaStream_t stream) {
  launch_dependent("attention sm90: order", order_kernel, 1, kThreads, 0, stream, params, tile_q,
                   first);
}

}  // namespace sparsek::attn::sm90
