#include "bsr_gemm/sm90_dense/choice.h"

#include "core/integers.h"
#include "core/workspace.h"

namespace sparsek::bsr::sm90_dense {

Tile choose_tile(std::int64_t m, std::int64_t n, int num_sms) {
  // Every SM computes one tile at a time. A large one is four small ones and takes 2.4 times as
  // long.
  const std::int64_t large = ceil_div(ceil_div(m, 128) * ceil_div(n, 256), num_sms);
  const std::int64_t small = ceil_div(ceil_div(m, 64) * ceil_div(n, 128), num_sms);
  return 12 * large <= 5 * small ? Tile::large : Tile::small;
}

std::size_t copy_bytes(const BlockShape& block, std::int64_t rows, std::int64_t cols) {
  if (block.rows == 0) return 0;
  return aligned(2 * static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
}

}  // namespace sparsek::bsr::sm90_dense
