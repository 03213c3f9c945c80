#pragma once

#include <cstdint>

namespace sparsek {

/// A value that is the same in all lanes, in a register that the compiler knows to be: what follows
/// from it, as descriptors and branches, costs a fraction.
__device__ inline std::uint32_t uniform(std::uint32_t value) {
  return __reduce_or_sync(0xffffffffu, value);
}

}  // namespace sparsek
