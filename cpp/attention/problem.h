#pragma once

#include <cstdint>
#include <string>

#include "attention/band.h"
#include "core/device.h"
#include "sparsek/attention.h"

namespace sparsek::attn {

/// What the user asked for, without addresses: enough to choose a backend and to print.
struct Problem {
  std::int64_t batch = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  DType dtype = DType::float16;
  DeviceInfo device;

  float scale = 0;
  Band band;
  bool causal = false;
  std::optional<std::int64_t> window_left;
  std::optional<std::int64_t> window_right;

  // Above 1, so many query heads of a kv head are packed: q_len counts rows, head by head of a
  // query, and the band is of queries. The sm90 backend makes such problems.
  std::int64_t packed_heads = 1;

  bool has_mask = false;
  std::int64_t q_block = 0;
  std::int64_t kv_block = 0;
  std::int64_t listed_keys = 0;    // of a list: as many as the arrays hold on average
  bool lists_of_kv_heads = false;  // each serves at least the query heads of a kv head
  bool partial_blocks = false;     // there may be some

  bool wants_lse = false;
  bool wants_weights = false;

  // Bytes that divide every row's address, at most 16.
  int q_alignment = 16;
  int k_alignment = 16;
  int v_alignment = 16;
  int out_alignment = 16;
  int weights_alignment = 16;
};

/// Checks every argument; throws Error naming the first that is wrong.
Problem make_problem(const AttentionArgs& args);

std::string to_string(const Problem& problem);

}  // namespace sparsek::attn
