#pragma once

#include <optional>
#include <string>

#include "attention/problem.h"
#include "attention/sm90/kernels.h"
#include "attention/sm90/shares.h"

namespace sparsek::attn::sm90 {

/// A compiled kernel, as a row of the table.
struct Kernel {
  int head_dim;
  int value_dim;
  int tile_q;
  int tile_kv;
  int stages;
  int ctas_per_sm;
  int teams;  // q tiles that a CTA works at
  bool lists;
  bool packs;  // takes packed heads, and without lists too parts of a tile's keys
  bool joins;  // two teams for each tile
  int box_columns_k;
  int box_columns_v;
  // Time of a tile's query against the first kernel of its head_dim, measured.
  double cost;
  void (*launch)(DType, const Params&, int num_ctas, cudaStream_t);
};

/// The kernel that a problem gets, and in which order its q tiles are visited.
struct Choice {
  const Kernel* kernel = nullptr;
  std::int64_t num_q_tiles = 0;  // of one head
  std::int64_t num_tiles = 0;
  int num_ctas = 0;
  int section = 0;         // see Schedule
  bool alternate = false;  // see Schedule
  Shares shares;
  bool keys_read_once = false;  // of a head one q tile reads keys
  bool counted = false;         // CTAs take the next tile when they are ready
};

/// Few queries of many heads: `p` with the query heads of each kv head packed, made in `memory`; or
/// `p` itself, which is not copied.
const Problem& pack_heads(const Problem& p, std::optional<Problem>* memory);

/// What the rows of the kernel's tiles are.
Rows rows_of(const Kernel& kernel, const Problem& problem);

/// A null kernel when none takes the problem.
Choice choose(const Problem& problem);

std::string to_string(const Choice& choice);

}  // namespace sparsek::attn::sm90
