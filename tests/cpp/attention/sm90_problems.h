#pragma once

#include "attention/sm90/choice.h"
#include "check.h"

namespace sparsek::attn {

inline Problem problem(std::int64_t head_dim, std::int64_t value_dim, std::int64_t q_len) {
  Problem p;
  p.batch = 1;
  p.q_len = q_len;
  p.kv_len = q_len;
  p.num_q_heads = p.num_kv_heads = 16;
  p.head_dim = head_dim;
  p.value_dim = value_dim;
  p.device.device = {DeviceType::cuda, 0};
  p.device.compute_capability = 90;
  p.device.num_sms = 132;
  p.scale = 0.125f;
  p.band = make_band(q_len, q_len, false, std::nullopt, std::nullopt);
  return p;
}

inline Problem one_query() {
  Problem p = problem(128, 128, 1);
  p.num_q_heads = 32;
  p.num_kv_heads = 8;
  p.kv_len = 131072;
  p.causal = true;
  p.band = make_band(1, p.kv_len, true, std::nullopt, std::nullopt);
  return p;
}

inline void check_choice(const Problem& p, int head_dim, int value_dim, int tile_q, int tile_kv) {
  const sm90::Choice choice = sm90::choose(p);
  CHECK(choice.kernel != nullptr, p.head_dim);
  if (choice.kernel == nullptr) return;
  CHECK_EQ(choice.kernel->head_dim, head_dim, p.head_dim);
  CHECK_EQ(choice.kernel->value_dim, value_dim, p.head_dim);
  CHECK_EQ(choice.kernel->tile_q, tile_q, p.head_dim);
  CHECK_EQ(choice.kernel->tile_kv, tile_kv, p.head_dim);
}

}  // namespace sparsek::attn
