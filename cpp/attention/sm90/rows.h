#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/divisor.h"

namespace sparsek::attn::sm90 {

/// What a row of a q tile is: a query, or where heads are packed, one of a query's heads: row i is
/// head i % heads of query i / heads.
struct Rows {
  Divisor heads;
  // The tile's last ones are empty where heads does not divide it, or there are no more. They are
  // not copied: a line of a TMA box beyond the tensor takes longer than one inside.
  std::int32_t of_tile = 0;

  SPARSEK_HOST_DEVICE std::int32_t query(std::int32_t row) const { return row / heads; }
};

/// Of tiles of `tile_q`, `num_rows` of each head.
inline Rows make_rows(int tile_q, std::int64_t heads, std::int64_t num_rows) {
  const auto count = static_cast<std::int32_t>(heads);
  const auto rows = static_cast<std::int32_t>(std::clamp<std::int64_t>(num_rows, count, tile_q));
  return {heads, rows / count * count};
}

}  // namespace sparsek::attn::sm90
