#include "attention/sm90/kernel_table.h"

#include <algorithm>
#include <iterator>

#include "core/integers.h"

namespace sparsek::attn::sm90 {
namespace {

template <class C>
constexpr Kernel row(double cost = 1) {
  return {C::kHeadDim,   C::kValueDim,     C::kTileQ, C::kTileKv, C::kStages,
          C::kCtasPerSm, C::kTilesAtATime, C::kLists, C::kPacks,  C::kJoins,
          C::kKeepsStep, C::kRowsOfPart,   C::kSlabK, C::kSlabV,  C::kStoresByTma,
          cost,          &launch<C>};
}

// clang-format off
constexpr Kernel kKernels[] = {
    row<Dense64>(),
    row<Dense64Wide>(1.02),
    row<Dense64Small>(1.25),
    row<Dense64Joined>(1.2),
    row<Dense96>(),
    row<Dense96Small>(1.15),
    row<Dense128>(),
    row<Dense128Small>(1.08),
    row<Dense192x128>(),
    row<Dense192x128Small>(1.15),
    row<Dense192>(),
    row<Dense256>(),
    row<Lists64>(1.8),
    row<Lists64Small>(),
    row<Lists96>(),
    row<Lists128>(),
    row<Lists192x128>(),
    row<Lists192>(),
    row<Lists256>(),
    row<NarrowLists64>(),
    row<NarrowLists128>(),
    row<NarrowLists256>(),
    row<PackedLists64>(),
    row<PackedLists128>(),
    row<PackedLists256>(),
    row<Split64>(),
    row<Split128>(),
    row<Split256>(),
};
// clang-format on

}  // namespace

KernelTable kernel_table() { return {std::begin(kKernels), std::end(kKernels)}; }

const Kernel& kernel_of_parts(const Problem& p) {
  return *std::find_if(std::begin(kKernels), std::end(kKernels), [&](const Kernel& kernel) {
    return kernel.packs && kernel.lists == p.has_mask && is_wide_enough(kernel, p);
  });
}

bool is_wide_enough(const Kernel& kernel, const Problem& p) {
  return kernel.head_dim >= p.head_dim && kernel.value_dim >= p.value_dim;
}

std::int64_t tiles_of(const Kernel& kernel, const Problem& p) {
  const std::int64_t rows_of_tile = kernel.tile_q / p.packed_heads * p.packed_heads;
  return ceil_div(p.q_len, rows_of_tile);
}

std::int64_t slots_of(const Kernel& kernel, const Problem& p) {
  return std::int64_t{std::max(1, p.device.num_sms)} * kernel.ctas_per_sm * kernel.teams;
}

std::int64_t keys_of_tile(const Problem& p, std::int64_t rows) {
  const std::int64_t queries = ceil_div(rows, p.packed_heads);
  const std::int64_t seen = std::min(p.kv_len, p.band.end_shift - p.band.begin_shift + queries - 1);
  return p.has_mask ? std::min(seen, p.listed_keys) : seen;
}

}  // namespace sparsek::attn::sm90
