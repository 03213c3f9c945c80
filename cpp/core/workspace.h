#pragma once

#include <cstddef>

namespace sparsek {

/// Up to the next multiple of 256 bytes, at which the parts of a workspace begin.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace sparsek
