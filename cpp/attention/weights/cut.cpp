#include "attention/weights/cut.h"

#include <algorithm>

#include "attention/weights/config.h"
#include "core/integers.h"

namespace sparsek::attn::weights {
namespace {

template <class C>
void set_kernel(Cut* cut) {
  cut->head_dim = C::kHeadDim;
  cut->launch = &launch<C>;
  cut->tile_q = C::kTileQ;
  cut->ctas_per_sm = C::kCtasPerSm;
}

}  // namespace

Cut cut_of(const Problem& p) {
  Cut cut;
  if (p.head_dim <= Config64::kHeadDim) {
    set_kernel<Config64>(&cut);
  } else if (p.head_dim <= Config128::kHeadDim) {
    set_kernel<Config128>(&cut);
  } else {
    set_kernel<Config256>(&cut);
  }
  if (p.q_len == 0) return cut;
  static_cast<QTiles&>(cut) =
      cut_queries(p, p.has_mask ? std::min(p.q_block, p.q_len) : cut.tile_q, cut.tile_q);
  const std::int64_t kv_tiles = ceil_div(p.kv_len, kTileKv);
  if (cut.num_tiles == 0 || kv_tiles == 0) return cut;
  // CTAs for two rounds of the chip, which evens out what causal leaves of each.
  const std::int64_t ctas = 2 * p.device.num_sms * cut.ctas_per_sm;
  const std::int64_t wanted = ceil_div(ctas, cut.num_tiles);
  const std::int64_t tiles_in_part = ceil_div(kv_tiles, std::min(wanted, kv_tiles));
  cut.num_parts = ceil_div(kv_tiles, tiles_in_part);
  cut.keys_in_part = tiles_in_part * kTileKv;
  return cut;
}

}  // namespace sparsek::attn::weights
