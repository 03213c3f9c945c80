#pragma once

#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE
#include "core/integers.h"

namespace sparsek::attn {

/// Divides by a number that is known before a kernel is launched: by one multiplication, as in
/// Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994. Exact for
/// dividends from 0 to 2^31 - 1.
class Divisor {
 public:
  Divisor() = default;
  Divisor(std::int64_t value)  // NOLINT: a number, and used as one
      : value_(static_cast<std::int32_t>(value)),
        shift_(31 + static_cast<std::uint32_t>(log2_of(value))),
        multiplier_(static_cast<std::uint32_t>(ceil_div(std::int64_t{1} << shift_, value))) {}

  SPARSEK_HOST_DEVICE std::int32_t value() const { return value_; }

  friend SPARSEK_HOST_DEVICE std::int32_t operator/(std::int32_t dividend, const Divisor& divisor) {
    return static_cast<std::int32_t>(std::uint64_t{static_cast<std::uint32_t>(dividend)} *
                                         divisor.multiplier_ >>
                                     divisor.shift_);
  }
  friend SPARSEK_HOST_DEVICE std::int32_t operator%(std::int32_t dividend, const Divisor& divisor) {
    return dividend - dividend / divisor * divisor.value_;
  }

 private:
  std::int32_t value_ = 1;
  std::uint32_t shift_ = 31;
  std::uint32_t multiplier_ = std::uint32_t{1} << 31;
};

}  // namespace sparsek::attn
