#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/problem.h"
#include "attention/sm90/kernels.h"

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
  bool keeps_step;
  int box_rows_q;
  int box_columns_k;
  int box_columns_v;
  bool stores_by_tma;
  // Time of a tile's query against the first kernel of its head_dim, measured.
  double cost;
  void (*launch)(DType, const Params&, int num_ctas, cudaStream_t);
};

/// All of them. By head_dim: the first that is wide enough has the least to fill with zeros. With
/// lists, the widest tiles first.
struct KernelTable {
  const Kernel* first;
  const Kernel* last;

  const Kernel* begin() const { return first; }
  const Kernel* end() const { return last; }
};
KernelTable kernel_table();

/// The kernel for parts of the keys and packed heads.
const Kernel& kernel_of_parts(const Problem& problem);

/// Whether its tiles have all columns of the problem.
bool is_wide_enough(const Kernel& kernel, const Problem& problem);

/// Q tiles of one head.
std::int64_t tiles_of(const Kernel& kernel, const Problem& problem);

/// Q tiles that the chip computes at a time.
std::int64_t slots_of(const Kernel& kernel, const Problem& problem);

/// Keys that a tile of so many rows may read.
std::int64_t keys_of_tile(const Problem& problem, std::int64_t rows);

}  // namespace sparsek::attn::sm90
