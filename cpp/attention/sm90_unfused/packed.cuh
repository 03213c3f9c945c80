#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

namespace sparsek::attn::sm90_unfused {

// Scores are float16 whatever the inputs' type (three more bits than bfloat16); probabilities have
// the inputs' type.

/// Eight scores or probabilities, as one 16-byte access moves them.
struct alignas(16) Vec {
  static constexpr int kSize = 8;
  std::uint32_t word[4];
};

constexpr std::uint32_t kNegInfBits = 0xFC00;  // of a float16
constexpr std::uint32_t kNegInfPair = kNegInfBits | kNegInfBits << 16;

__device__ inline __half2 score_pair(std::uint32_t bits) {
  return *reinterpret_cast<__half2*>(&bits);
}

__device__ inline std::uint32_t probability_bits(__half, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t probability_bits(__nv_bfloat16, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Two neighbours of q or k.
__device__ inline float2 to_float(__half, std::uint32_t bits) {
  return __half22float2(score_pair(bits));
}
__device__ inline float2 to_float(__nv_bfloat16, std::uint32_t bits) {
  return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&bits));
}

/// Reads the first `count` scores; the others become -inf.
__device__ inline Vec load_vec(const std::uint16_t* row, int count) {
  if (count >= Vec::kSize) return *reinterpret_cast<const Vec*>(row);
  Vec vec;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = 2 * i < count ? row[2 * i] : kNegInfBits;
    const std::uint32_t high = 2 * i + 1 < count ? row[2 * i + 1] : kNegInfBits;
    vec.word[i] = low | high << 16;
  }
  return vec;
}

/// Writes the first `count` elements.
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

/// Scores whose bit is not set become -inf.
__device__ inline void erase(Vec& vec, std::uint32_t allowed) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t bits = vec.word[i];
    if (!(allowed >> (2 * i) & 1u)) bits = (bits & 0xffff0000u) | kNegInfBits;
    if (!(allowed >> (2 * i + 1) & 1u)) bits = (bits & 0xffffu) | kNegInfBits << 16;
    vec.word[i] = bits;
  }
}

/// Scores past the largest float16 were stored as infinity; they come back to the largest, since
/// inf - inf would turn the row into NaN.
__device__ inline void saturate(Vec& vec) {
  const __half2 limit = __float2half2_rn(65504.0f);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 pair = __hmax2_nan(__hmin2_nan(score_pair(vec.word[i]), limit), __hneg2(limit));
    vec.word[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

__device__ inline float max_of(const Vec& vec) {
  const __half2 pair = __hmax2(__hmax2(score_pair(vec.word[0]), score_pair(vec.word[1])),
                               __hmax2(score_pair(vec.word[2]), score_pair(vec.word[3])));
  return fmaxf(__low2float(pair), __high2float(pair));
}

}  // namespace sparsek::attn::sm90_unfused
