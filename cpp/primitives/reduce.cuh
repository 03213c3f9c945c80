#pragma once

#include <cstdint>

namespace sparsek {

/// A value that is the same in all lanes, in a register that the compiler knows to be: what follows
/// from it, as descriptors and branches, costs a fraction.
__device__ inline std::uint32_t uniform(std::uint32_t value) {
  return __reduce_or_sync(0xffffffffu, value);
}

/// The values of the warp's lanes up to this one, added.
__device__ inline int sum_up_to_lane(int value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int offset = 1; offset < 32; offset *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += before;
  }
  return value;
}

}  // namespace sparsek
