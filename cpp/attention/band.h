#pragma once

#include <cstdint>
#include <optional>

#if defined(__CUDACC__)
#define SPARSEK_HOST_DEVICE __host__ __device__
#else
#define SPARSEK_HOST_DEVICE
#endif

namespace sparsek::attn {

/// Causal and window masks as one thing: query i sees the keys [begin(i), end(i)).
struct Band {
  std::int64_t kv_len = 0;
  std::int64_t begin_shift = 0;  // begin(i) = i + begin_shift, at least 0
  std::int64_t end_shift = 0;    // end(i) = i + end_shift, at most kv_len

  SPARSEK_HOST_DEVICE std::int64_t begin(std::int64_t query) const {
    const std::int64_t key = query + begin_shift;
    return key > 0 ? key : 0;
  }
  SPARSEK_HOST_DEVICE std::int64_t end(std::int64_t query) const {
    const std::int64_t key = query + end_shift;
    return key < 0 ? 0 : key < kv_len ? key : kv_len;
  }
};

/// Query i stands at position i + kv_len - q_len; an absent side is unbounded.
inline Band make_band(std::int64_t q_len, std::int64_t kv_len, bool causal,
                      std::optional<std::int64_t> window_left,
                      std::optional<std::int64_t> window_right) {
  const std::int64_t unbounded = q_len + kv_len;  // past every key, far from overflow
  std::int64_t left = window_left.value_or(unbounded);
  std::int64_t right = window_right.value_or(unbounded);
  if (causal && right > 0) right = 0;
  if (left > unbounded) left = unbounded;
  if (right > unbounded) right = unbounded;
  const std::int64_t shift = kv_len - q_len;
  return Band{kv_len, shift - left, shift + right + 1};
}

inline bool is_unbounded(const Band& band, std::int64_t q_len) {
  return band.begin(q_len - 1) == 0 && band.end(0) == band.kv_len;
}

}  // namespace sparsek::attn
