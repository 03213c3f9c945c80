#pragma once

#include <cstdint>

namespace sparsek {

// CUTLASS's waits do not tell the compiler that memory changes, and our kernels read words of
// shared memory behind them.

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline bool try_wait(const std::uint64_t* barrier, std::uint32_t phase) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(phase)
      : "memory");
  return done != 0;
}

/// Until the phase of that parity has ended.
__device__ inline void wait(const std::uint64_t* barrier, std::uint32_t phase) {
  while (!try_wait(barrier, phase)) {
  }
}

/// The same by a whole warp. In a loop that each lane leaves by itself the compiler may lose sight
/// of their being together, and with it all uniform registers of the kernel.
__device__ inline void wait_as_warp(const std::uint64_t* barrier, std::uint32_t phase) {
  while (!__all_sync(~0u, try_wait(barrier, phase))) {
  }
}

/// Has the phase wait for so many bytes of TMA too; someone arrives after it.
__device__ inline void expect(const std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Both. Under racecheck it does not order the words that this thread has written: `expect` and
/// `arrive` do.
__device__ inline void arrive_expecting(const std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline void arrive(const std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// 16 bytes to the shared memory of a CTA of the cluster, whose barrier counts them. In a launch
/// without a cluster the instruction is an illegal one.
__device__ inline void send_four(std::uint32_t to, std::uint32_t barrier, std::uint32_t x,
                                 std::uint32_t y, std::uint32_t z, std::uint32_t w) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(to),
      "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ inline void store_four(std::uint32_t to, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x), "f"(y), "f"(z), "f"(w)
               : "memory");
}

/// 16 bytes to shared memory: the first `bytes` of them copied, the others zero.
__device__ inline void copy_async(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/// The same, if wanted.
__device__ inline void copy_async_if(bool wanted, std::uint32_t to, const void* from, int bytes) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %3, 0;\n"
      "@p cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
      "}\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Arrives once the copies of this thread have landed. Who waits must fence before tensor cores
/// read them.
__device__ inline void arrive_after_copies(const std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

}  // namespace sparsek
