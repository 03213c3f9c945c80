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
  bool splits;  // takes packed heads, and a part of a tile's keys, which with lists all do
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
  Shares shares;           // with lists
  // Without lists, or with packed heads: where the tiles are too few for the chip, 2^log2_splits
  // CTAs have the keys of one, each so many that follow each other, or a part of its list.
  int log2_splits = 0;
  bool in_parts = false;  // written to the workspace and added
  std::int64_t split_keys = 0;
  bool keys_read_once = false;  // of a head one q tile reads keys
  bool counted = false;         // CTAs take the next tile when they are ready
};

/// Few queries of many heads: `p` with the query heads of each kv head packed, made in `memory`; or
/// `p` itself, which is not copied.
const Problem& pack_heads(const Problem& p, std::optional<Problem>* memory);

/// A null kernel when none takes the problem.
Choice choose(const Problem& problem);

std::string to_string(const Choice& choice);

}  // namespace sparsek::attn::sm90
