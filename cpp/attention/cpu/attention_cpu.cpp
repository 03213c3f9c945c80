#include <algorithm>

#include "attention/backends.h"
#include "attention/cpu/kv_tiles.h"
#include "attention/cpu/q_tile_worker.h"
#include "core/message.h"
#include "core/threads.h"

namespace sparsek::attn::cpu {
namespace {

constexpr std::int64_t kFewTiles = 64;

Reason always() { return std::nullopt; }

Reason supports(const Problem& problem) {
  if (problem.device.device.type != DeviceType::cpu) {
    return cat("arrays are on ", to_string(problem.device.device));
  }
  if (problem.head_dim > kMaxHeadDim) {
    return cat("expected a head_dim of at most ", kMaxHeadDim, ", got ", problem.head_dim);
  }
  if (problem.value_dim > kMaxHeadDim) {
    return cat("expected a value dim of at most ", kMaxHeadDim, ", got ", problem.value_dim);
  }
  return std::nullopt;
}

std::size_t no_workspace(const Problem&) { return 0; }

/// Smaller tiles when there are few, so that threads share the work evenly. It depends on the
/// problem alone: the number of threads must not change the result.
std::int64_t largest_tile(const Problem& problem) {
  const std::int64_t heads = problem.batch * problem.num_q_heads;
  std::int64_t tile = kTileQ;
  while (tile > 32 && heads * (problem.q_len / tile) < kFewTiles) tile /= 2;
  return tile;
}

/// Keys that a query sees on average, or somewhat more.
double keys_per_query(const Problem& problem, const BlockMaskView* mask) {
  const double all = static_cast<double>(problem.kv_len);
  if (mask == nullptr || mask->num_lists() == 0) return all;
  const double blocks =
      static_cast<double>(mask->num_indices) / static_cast<double>(mask->num_lists());
  return std::min(all, blocks * static_cast<double>(mask->kv_block));
}

void run(const Problem& problem, const AttentionArgs& args) {
  const QTiling tiling(args.mask, problem.q_len, largest_tile(problem));
  const std::int64_t num_heads = problem.num_q_heads;
  const std::int64_t num_tasks = problem.batch * num_heads * tiling.size();
  const double flops = 2.0 * static_cast<double>(problem.batch * num_heads * problem.q_len) *
                       keys_per_query(problem, args.mask) *
                       static_cast<double>(problem.head_dim + problem.value_dim);
  run_tasks(num_tasks, flops / static_cast<double>(num_tasks), [&](TaskQueue& tasks) {
    QTileWorker worker(problem, args);
    for (std::int64_t task; tasks.next(&task);) {
      const std::int64_t head = task / tiling.size();
      QTile tile;
      if (tiling.tile(task % tiling.size(), &tile)) {
        worker.run(head / num_heads, head % num_heads, tile);
      }
    }
  });
}

}  // namespace

AttentionBackend backend() { return {"cpu", always, supports, no_workspace, run}; }

}  // namespace sparsek::attn::cpu
