#pragma once

#include "primitives/ptx.cuh"

namespace sparsek {

/// 2^x on the FMA pipes, for x below 128; results under 2^-126 become 2^-127 or 0. The fraction's
/// power is a cubic of relative error 7.5e-5, a sixth of half a unit of float16. (The
/// special-function unit makes 16 of these a clock and SM, which is what attention with a head_dim
/// of 64 waits for.)
__device__ inline float exp2_cubic(float x) {
  x = fmaxf(x, -126.0f);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  const float shifted = x + kRound;
  const float fraction = x - (shifted - kRound);  // -0.5 ... 0.5
  float power = fmaf(fraction, 0.05517166f, 0.24261112f);
  power = fmaf(power, fraction, 0.69326099f);
  power = fmaf(power, fraction, 0.99992807f);
  return __int_as_float(__float_as_int(power) + (__float_as_int(shifted) << 23));
}

}  // namespace sparsek
