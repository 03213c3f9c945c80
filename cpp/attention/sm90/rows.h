#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE

namespace sparsek::attn::sm90 {

/// What a row of a q tile is: a query, or where heads are packed, one of a query's heads: row i is
/// head i % heads of query i / heads.
struct Rows {
  std::int32_t heads = 1;
  // The tile's last ones are empty where heads does not divide it, or there are no more. They are
  // not copied: a line of a TMA box beyond the tensor takes longer than one inside.
  std::int32_t of_tile = 0;
  std::uint32_t inverse_of_heads = 0;  // 2^32 / heads, rounded up

  SPARSEK_HOST_DEVICE std::int32_t query(std::int32_t row) const {
    if (heads == 1) return row;
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(row) * inverse_of_heads >> 32);
  }
};

/// Of tiles of `tile_q`, `num_rows` of each head. Exact for rows below 2^32 / heads.
inline Rows make_rows(int tile_q, std::int64_t heads, std::int64_t num_rows) {
  const auto count = static_cast<std::int32_t>(heads);
  const auto rows = static_cast<std::int32_t>(std::clamp<std::int64_t>(num_rows, count, tile_q));
  return {count, rows / count * count,
          static_cast<std::uint32_t>((std::uint64_t{1} << 32) / heads +
                                     ((std::uint64_t{1} << 32) % heads != 0))};
}

}  // namespace sparsek::attn::sm90
