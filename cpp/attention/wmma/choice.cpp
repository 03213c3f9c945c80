#include "attention/wmma/choice.h"

#include <algorithm>

#include "attention/fused.h"
#include "core/integers.h"
#include "core/message.h"

namespace sparsek::attn::wmma {
namespace {

template <class C>
constexpr Kernel row(double cost = 1) {
  static_assert(smem_bytes_of<C>() <= kLeastSmemBytes, "every chip from sm_80 on can run it");
  return {C::kHeadDim,   C::kTileQ,          C::kTileKv, C::kWarps,
          C::kCtasPerSm, smem_bytes_of<C>(), cost,       &launch<C>};
}

// By head_dim: the first that is wide enough has the least to fill with zeros.
constexpr Kernel kKernels[] = {
    row<Wide64>(), row<Narrow64>(1.2), row<Wide128>(), row<Narrow128>(1.2), row<Narrow256>(),
};

// Heads whose q tiles are visited together, longest first, under a band that makes them unequal.
constexpr int kSectionHeads = 4;

bool takes(const Kernel& kernel, const Problem& p) {
  return kernel.head_dim >= std::max(p.head_dim, p.value_dim) &&
         kernel.smem_bytes <= p.device.max_smem_per_block_bytes;
}

/// Relative time: rounds of the chip's CTAs, each as long as its queries.
double estimate(const Choice& choice, const Problem& p) {
  const Kernel& kernel = *choice.kernel;
  const std::int64_t at_once = std::max(1, p.device.num_sms * kernel.ctas_per_sm);
  return static_cast<double>(ceil_div(choice.num_tiles, at_once)) * kernel.ctas_per_sm *
         kernel.tile_q * kernel.cost;
}

}  // namespace

Choice choose(const Problem& p) {
  Choice best;
  for (const Kernel& kernel : kKernels) {
    if (!takes(kernel, p)) continue;
    if (best.kernel != nullptr && kernel.head_dim != best.kernel->head_dim) continue;
    Choice choice;
    choice.kernel = &kernel;
    static_cast<QTiles&>(choice) =
        cut_queries(p, p.has_mask ? p.q_block : kernel.tile_q, kernel.tile_q);
    if (!p.has_mask && p.q_len > 0 && is_unequal(p)) choice.section = kSectionHeads;
    if (best.kernel == nullptr || estimate(choice, p) < estimate(best, p)) best = choice;
  }
  return best;
}

std::string to_string(const Choice& choice) {
  const Kernel& k = *choice.kernel;
  return cat("head_dim=", k.head_dim, " tile=", k.tile_q, "x", k.tile_kv, " warps=", k.warps,
             " smem=", k.smem_bytes, " schedule=", choice.section ? "longest first" : "in order",
             " ctas=", choice.num_tiles);
}

}  // namespace sparsek::attn::wmma
