#pragma once

#include "core/simd.h"

namespace sparsek {

/// 2^x for x up to 127, relative error below 2e-7; 0 below 2^-126 (so 2^-inf = 0), NaN for NaN.
template <int kWidth>
SPARSEK_INLINE typename Simd<kWidth>::Float exp2(const typename Simd<kWidth>::Float& x) {
  using Float = typename Simd<kWidth>::Float;
  using Int = typename Simd<kWidth>::Int;
  // Adding 1.5 * 2^23 leaves the nearest whole number in the low bits.
  const Float shift = Float{} + 12582912.0f;
  const Float bounded = x < -126.0f ? Float{} - 126.0f : x;  // false for NaN, which stays
  const Float shifted = bounded + shift;
  const Float f = bounded - (shifted - shift);  // -1/2 to 1/2
  // Minimax polynomial of 2^f, 2e-9.
  Float y = f * 1.5345812e-4f + 1.33999314e-3f;
  y = y * f + 9.6184889e-3f;
  y = y * f + 5.5503288e-2f;
  y = y * f + 2.40226469e-1f;
  y = y * f + 6.93147206e-1f;
  y = y * f + 1.0f;
  // A product, because adding to the exponent would turn a NaN into a number.
  const Int n = bits_as<Int>(shifted) - bits_as<Int>(shift);
  y *= bits_as<Float>((n + 127) << 23);
  return x < -126.0f ? Float{} : y;
}

}  // namespace sparsek
