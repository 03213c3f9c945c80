#pragma once

#include "attention/band.h"

namespace sparsek::attn::sm90 {

/// The keys that some query of a q tile may see under causal and window: [begin, end).
struct KeyRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

SPARSEK_HOST_DEVICE inline KeyRange visible_keys(const Band& band, std::int32_t q_begin,
                                                 std::int32_t q_end) {
  return {static_cast<std::int32_t>(band.begin(q_begin)),
          static_cast<std::int32_t>(band.end(q_end - 1))};
}

/// The keys that every query of a q tile may see; empty (end <= begin) when there is none.
SPARSEK_HOST_DEVICE inline KeyRange shared_keys(const Band& band, std::int32_t q_begin,
                                                std::int32_t q_end) {
  return {static_cast<std::int32_t>(band.begin(q_end - 1)),
          static_cast<std::int32_t>(band.end(q_begin))};
}

SPARSEK_HOST_DEVICE inline bool meets(const KeyRange& range, std::int32_t begin, std::int32_t end) {
  return begin < range.end && end > range.begin;
}

SPARSEK_HOST_DEVICE inline bool contains(const KeyRange& range, std::int32_t begin,
                                         std::int32_t end) {
  return begin >= range.begin && end <= range.end;
}

}  // namespace sparsek::attn::sm90
