#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>

#include "bsr_gemm/sm90/layouts.cuh"
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
    constexpr int kFours = decltype(cute::size(acc))::value / 4;
    static_assert(kFours * 16 * 128 == kBytes);
    const int part = static_cast<int>(cute::block_rank_in_cluster());
    const std::uint32_t received = shared_address(&smem + 1) + threadIdx.x % 128 * 16;
    if (part != group) {
      const int slot = part < group ? part : part - 1;
      const std::uint32_t to = cute::set_block_rank(received + slot * kBytes, group);
      const std::uint32_t barrier = cute::set_block_rank(shared_address(&smem.sums_full), group);
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        send(to + i * 128 * 16, barrier, acc(4 * i), acc(4 * i + 1), acc(4 * i + 2),
             acc(4 * i + 3));
      }
      return false;
    }
    wait(&smem.sums_full, 0);
    for (int slot = 0; slot < parts - 1; ++slot) {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const float4 sum = load(received + slot * kBytes + i * 128 * 16);
        acc(4 * i) += sum.x;
        acc(4 * i + 1) += sum.y;
        acc(4 * i + 2) += sum.z;
        acc(4 * i + 3) += sum.w;
      }
    }
    return true;
  }

 private:
  /// 16 bytes to the shared memory of a CTA of the cluster, whose barrier counts them.
  static __device__ void send(std::uint32_t to, std::uint32_t barrier, float x, float y, float z,
                              float w) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, "
        "%5}, [%1];" ::"r"(to),
        "r"(barrier), "f"(x), "f"(y), "f"(z), "f"(w)
        : "memory");
  }
  static __device__ float4 load(std::uint32_t from) {
    float4 four;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(from)
                 : "memory");
    return four;
  }
};

}  // namespace sparsek::bsr::sm90
