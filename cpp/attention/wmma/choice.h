#pragma once

#include <string>

#include "attention/problem.h"
#include "attention/q_tiles.h"
#include "attention/wmma/kernels.h"

namespace sparsek::attn::wmma {

/// A compiled kernel, as a row of the table.
struct Kernel {
  int head_dim;
  int tile_q;
  int tile_kv;
  int warps;
  int ctas_per_sm;
  int smem_bytes;
  double cost;  // of a query's work against the fastest kernel of its head_dim, measured
  void (*launch)(DType, const Params&, cudaStream_t);
};

/// The kernel that a problem gets, and in which order its q tiles are visited.
struct Choice : QTiles {
  const Kernel* kernel = nullptr;
  int section = 0;  // see Params
};

/// A null kernel when none takes the problem on its device.
Choice choose(const Problem& problem);

std::string to_string(const Choice& choice);

}  // namespace sparsek::attn::wmma
