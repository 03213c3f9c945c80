#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
#include "bsr_gemm/sm90/sums.cuh"
#include "primitives/barrier.cuh"

namespace sparsek::bsr::sm90 {

/// The CTAs of a cluster, each of which walked a part of a tile's list, and their sums: those of
/// warp group g are added up in CTA g, which stores them. They are sent there as they are ready,
/// and a barrier counts the bytes: a barrier of the whole cluster, twice, took 2 us, most of it for
/// memory fences.
template <class C>
struct Parts {
  static constexpr int kBytes = kGroupRows * C::kTileCols * sizeof(float);  // of a group

  /// Shared memory behind the storage.
  static constexpr int bytes_received(int parts) { return (parts - 1) * kBytes; }

  /// All threads; behind it the cluster may send. All wait, though few will send: a barrier at
  /// which some only arrive hangs under compute-sanitizer's racecheck, and costs as much.
  static __device__ void begin(SharedStorage<C>& smem, int parts) {
    if (threadIdx.x == 0) {
      cutlass::arch::ClusterBarrier::init(&smem.sums_full, 1);
      cutlass::arch::fence_barrier_init();
      arrive_expecting(&smem.sums_full, bytes_received(parts));
    }
    __syncwarp();
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
  }

  /// Adds the other CTAs' sums, always in the same order. False where another CTA adds this
  /// group's.
  template <class Acc>
  static __device__ bool add(SharedStorage<C>& smem, int parts, int group, Acc& acc) {
    static_assert(kFours<Acc> * 16 * 128 == kBytes);
    const int part = static_cast<int>(cute::block_rank_in_cluster());
    auto* const received = reinterpret_cast<float4*>(&smem + 1) + threadIdx.x % 128;
    if (part != group) {
      const int slot = part < group ? part : part - 1;
      const std::uint32_t to =
          cute::set_block_rank(shared_address(received) + slot * kBytes, group);
      const std::uint32_t barrier = cute::set_block_rank(shared_address(&smem.sums_full), group);
#pragma unroll
      for (int i = 0; i < kFours<Acc>; ++i) {
        const auto bits = [&](int j) { return __float_as_uint(acc(4 * i + j)); };
        send_four(to + i * 128 * 16, barrier, bits(0), bits(1), bits(2), bits(3));
      }
      return false;
    }
    wait(&smem.sums_full, 0);
    for (int slot = 0; slot < parts - 1; ++slot) {
      add_sums(acc, [&](int i) { return received[(slot * kFours<Acc> + i) * 128]; });
    }
    return true;
  }
};

}  // namespace sparsek::bsr::sm90
