#pragma once

#include <cstdint>

#include "attention/band.h"  // SPARSEK_HOST_DEVICE

namespace sparsek::attn::sm90 {

/// What a row of a q tile is: a query, or where heads are packed, one of a query's heads: row i is
/// head i % heads of query i / heads.
struct Rows {
  std::int32_t heads = 1;
  std::int32_t of_tile = 0;  // the tile's last ones are empty where heads does not divide it
  std::uint32_t inverse_of_heads = 0;  // 2^32 / heads, rounded up

  SPARSEK_HOST_DEVICE std::int32_t query(std::int32_t row) const {
    if (heads == 1) return row;
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(row) * inverse_of_heads >> 32);
  }
};

/// Of tiles of `tile_q`. Exact for rows below 2^32 / heads.
inline Rows make_rows(int tile_q, std::int64_t heads) {
  const auto count = static_cast<std::int32_t>(heads);
  return {count, tile_q / count * count,
          static_cast<std::uint32_t>((std::uint64_t{1} << 32) / heads +
                                     ((std::uint64_t{1} << 32) % heads != 0))};
}

}  // namespace sparsek::attn::sm90
