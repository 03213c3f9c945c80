// Division by a multiplication.

#include <vector>

#include "attention/divisor.h"
#include "check.h"

using namespace sparsek::attn;

int main() {
  constexpr std::int32_t kMost = 0x7fffffff;
  std::vector<std::int32_t> divisors{1000,    4095,    4096,          4097,      65535, 65537,
                                     1 << 20, 1 << 30, (1 << 30) + 1, kMost - 1, kMost};
  for (std::int32_t value = 1; value <= 200; ++value) divisors.push_back(value);
  for (const std::int32_t value : divisors) {
    const Divisor divisor(value);
    CHECK_EQ(divisor.value(), value);
    std::vector<std::int32_t> dividends{0, 1, value - 1, value, kMost - 1, kMost};
    const std::int32_t last = kMost / value * value;  // where an error of the inverse is largest
    for (std::int32_t i = 1; i < 100; ++i) {
      const std::int64_t multiple = std::int64_t{kMost} / value * i / 100 * value;
      dividends.push_back(static_cast<std::int32_t>(multiple));
      if (multiple > 0) dividends.push_back(static_cast<std::int32_t>(multiple - 1));
    }
    dividends.push_back(last);
    dividends.push_back(last - 1);
    for (const std::int32_t dividend : dividends) {
      CHECK_EQ(dividend / divisor, dividend / value, dividend, value);
      CHECK_EQ(dividend % divisor, dividend % value, dividend, value);
    }
  }
  const Divisor one;
  CHECK_EQ(kMost / one, kMost);
  return failures() != 0;
}
