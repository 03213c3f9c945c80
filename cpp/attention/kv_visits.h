#pragma once

#include "attention/band.h"

namespace sparsek::attn {

// Band::begin and Band::end in 32 bits, which lengths of at most 2^29 allow.
SPARSEK_HOST_DEVICE inline std::int32_t begin_of(const Band& band, std::int32_t query) {
  const std::int32_t key = query + static_cast<std::int32_t>(band.begin_shift);
  return key > 0 ? key : 0;
}
SPARSEK_HOST_DEVICE inline std::int32_t end_of(const Band& band, std::int32_t query) {
  const std::int32_t key = query + static_cast<std::int32_t>(band.end_shift);
  const auto kv_len = static_cast<std::int32_t>(band.kv_len);
  return key < 0 ? 0 : key < kv_len ? key : kv_len;
}

/// The keys that some query of a q tile may see under causal and window: [begin, end).
struct KeyRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

SPARSEK_HOST_DEVICE inline KeyRange visible_keys(const Band& band, std::int32_t q_begin,
                                                 std::int32_t q_end) {
  return {begin_of(band, q_begin), end_of(band, q_end - 1)};
}

/// The keys that every query of a q tile may see; empty (end <= begin) when there is none.
SPARSEK_HOST_DEVICE inline KeyRange shared_keys(const Band& band, std::int32_t q_begin,
                                                std::int32_t q_end) {
  return {begin_of(band, q_end - 1), end_of(band, q_begin)};
}

SPARSEK_HOST_DEVICE inline bool meets(const KeyRange& range, std::int32_t begin, std::int32_t end) {
  return begin < range.end && end > range.begin;
}

SPARSEK_HOST_DEVICE inline bool contains(const KeyRange& range, std::int32_t begin,
                                         std::int32_t end) {
  return begin >= range.begin && end <= range.end;
}

}  // namespace sparsek::attn
