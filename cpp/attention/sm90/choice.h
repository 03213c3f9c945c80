#pragma once

#include <optional>
#include <string>

#include "attention/problem.h"
#include "attention/sm90/kernel_table.h"
#include "attention/sm90/shares.h"

namespace sparsek::attn::sm90 {

/// The kernel that a problem gets, and in which order its q tiles are visited.
struct Choice {
  const Kernel* kernel = nullptr;
  std::int64_t num_q_tiles = 0;  // of one head
  std::int64_t num_tiles = 0;
  int num_ctas = 0;
  int section = 0;         // see Schedule
  bool alternate = false;  // see Schedule
  bool together = false;   // see Schedule
  bool in_step = false;    // CTAs count the stretches of keys that they have come through
  Shares shares;
  bool keys_read_once = false;  // of a head one q tile reads keys
  bool counted = false;         // CTAs take the next tile when they are ready

  /// Whether there is something that CTAs count.
  bool has_progress() const { return counted || in_step; }
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
