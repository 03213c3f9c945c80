#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

namespace sparsek::attn::sm90_unfused {

/// Arithmetic on two 16-bit scores that share a register.
template <class Element>
struct Packed;

template <>
struct Packed<__half> {
  using Pair = __half2;
  static constexpr std::uint32_t kNegInf = 0xFC00;
  static __device__ Pair from_bits(std::uint32_t bits) { return *reinterpret_cast<Pair*>(&bits); }
  static __device__ float2 to_float(Pair pair) { return __half22float2(pair); }
  static __device__ Pair from_float(float x, float y) { return __floats2half2_rn(x, y); }
  static __device__ Pair max(Pair a, Pair b) { return __hmax2(a, b); }
  /// A score past the largest float16 was stored as infinity; inf - inf would turn the row into NaN.
  static __device__ Pair saturate(Pair pair) {
    const Pair limit = __float2half2_rn(65504.0f);
    return __hmax2_nan(__hmin2_nan(pair, limit), __hneg2(limit));
  }
};

template <>
struct Packed<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static constexpr std::uint32_t kNegInf = 0xFF80;
  static __device__ Pair from_bits(std::uint32_t bits) { return *reinterpret_cast<Pair*>(&bits); }
  static __device__ float2 to_float(Pair pair) { return __bfloat1622float2(pair); }
  static __device__ Pair from_float(float x, float y) { return __floats2bfloat162_rn(x, y); }
  static __device__ Pair max(Pair a, Pair b) { return __hmax2(a, b); }
  static __device__ Pair saturate(Pair pair) { return pair; }
};

/// Eight scores, as one 16-byte access moves them.
struct alignas(16) Vec {
  static constexpr int kSize = 8;
  std::uint32_t word[4];
};

/// Reads the first `count` scores; the others become -inf.
template <class Element>
__device__ Vec load_vec(const std::uint16_t* row, int count) {
  if (count >= Vec::kSize) return *reinterpret_cast<const Vec*>(row);
  Vec vec;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = 2 * i < count ? row[2 * i] : Packed<Element>::kNegInf;
    const std::uint32_t high = 2 * i + 1 < count ? row[2 * i + 1] : Packed<Element>::kNegInf;
    vec.word[i] = low | high << 16;
  }
  return vec;
}

/// Writes the first `count` scores.
__device__ inline void store_vec(std::uint16_t* row, const Vec& vec, int count) {
  if (count >= Vec::kSize) {
    *reinterpret_cast<Vec*>(row) = vec;
    return;
  }
#pragma unroll
  for (int i = 0; i < Vec::kSize; ++i) {
    if (i < count) row[i] = static_cast<std::uint16_t>(vec.word[i / 2] >> (i % 2 * 16));
  }
}

/// Saturates the scores and erases those whose bit is not set.
template <class Element>
__device__ void erase(Vec& vec, std::uint32_t allowed) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    auto pair = Packed<Element>::saturate(Packed<Element>::from_bits(vec.word[i]));
    std::uint32_t bits = *reinterpret_cast<std::uint32_t*>(&pair);
    if (allowed != 0xffu) {
      if (!(allowed >> (2 * i) & 1u)) bits = (bits & 0xffff0000u) | Packed<Element>::kNegInf;
      if (!(allowed >> (2 * i + 1) & 1u)) bits = (bits & 0xffffu) | Packed<Element>::kNegInf << 16;
    }
    vec.word[i] = bits;
  }
}

template <class Element>
__device__ float max_of(const Vec& vec) {
  auto pair = Packed<Element>::from_bits(vec.word[0]);
#pragma unroll
  for (int i = 1; i < 4; ++i) {
    pair = Packed<Element>::max(pair, Packed<Element>::from_bits(vec.word[i]));
  }
  const float2 values = Packed<Element>::to_float(pair);
  return fmaxf(values.x, values.y);
}

}  // namespace sparsek::attn::sm90_unfused
