#pragma once

#include <cstdint>

namespace sparsek {

/// a / b rounded up, of numbers that are not negative.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Of a power of two.
constexpr int log2_of(std::int64_t power) {
  int log2 = 0;
  while ((std::int64_t{1} << log2) < power) ++log2;
  return log2;
}

}  // namespace sparsek
