#pragma once

#include <cstdint>

namespace sparsek {

/// a / b rounded up, of numbers that are not negative.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace sparsek
