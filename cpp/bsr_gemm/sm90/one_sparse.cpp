#include <algorithm>
#include <cstdint>

#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/sides.h"
#include "bsr_gemm/sm90/stretches.h"
#include "bsr_gemm/sm90/tile_choice.h"
#include "core/cuda_check.h"
#include "core/log.h"
#include "core/message.h"

namespace sparsek::bsr::sm90 {
namespace {

constexpr int kWideTile = 256;
constexpr std::size_t kBytesOfFlags = 8192;  // one for each warp group of each worker

TileChoice tile_of(const Problem& p) {
  const Sides s = sides_of(p);
  return choose_tile(ceil_div(s.rows, kTileRows), s.cols, inner_of(s.block), p.device.num_sms);
}

void set_sparse(const Sides& s, const TensorView& values, const KernelKey& key, Params* params) {
  if (key.inner == 16) return set_copied(s, values, key.sparse, params);
  if (values.shape[0] == 0) return;
  params->folded = can_fold(values, s.sparse_k_axis, key.sparse, key.inner);
  params->sparse_map =
      params->folded ? folded_map(s.sparse_name, values, s.sparse_k_axis)
                     : block_map(s.sparse_name, values, s.sparse_k_axis, key.sparse, key.inner);
}

/// Of the last tiles only the columns that there are: TMA takes longer for others.
void set_dense(const Sides& s, const TensorView& dense, const KernelKey& key, Params* params) {
  params->dense_in_chunks = dense_in_chunks(s, key);
  params->dense_map = dense_map(s, dense, key, key.tile_cols);
  const std::int64_t last = s.cols % key.tile_cols;
  if (last == 0) return;
  params->last_col = static_cast<std::int32_t>(s.cols - last);
  params->last_cols =
      static_cast<std::int32_t>(key.dense == Major::k ? last : ceil_div(last, 64) * 64);
  const bool one_box = key.dense == Major::k || params->dense_in_chunks;
  params->last_dense_map = one_box ? dense_map(s, dense, key, last) : params->dense_map;
}

/// Panels that leave no SM idle in the last round: with blocks of 16 and 32, of which L2 gives an
/// SM no more when others are idle, and where no panels are abreast, which those would break up.
void set_narrow_panels(const Sides& s, const TensorView& dense, const KernelKey& key, int num_sms,
                       Params* params) {
  if (key.inner == 64 || params->log2_abreast > 0 || s.cols % kWideTile != 0) return;
  const std::int64_t groups = params->lists.num_groups;
  const Panels panels = choose_panels(groups, s.cols / kWideTile, num_sms);
  if (panels.narrow == 0) return;
  params->dealt_tiles = static_cast<std::int32_t>((panels.wide + panels.narrow) * groups);
  params->last_col = static_cast<std::int32_t>(panels.wide * kWideTile);
  params->last_cols = kNarrowCols;
  params->last_dense_map = dense_map(s, dense, key, kNarrowCols);
}

void set_abreast(const BsrMatrixView& matrix, const TileChoice& tile, Params* params) {
  if (tile.cols < kWideTile) return;  // each CTA has one tile
  const int log2 = log2_abreast(matrix);
  params->log2_abreast = log2;
  params->panels_abreast = params->num_tiles / params->lists.num_groups >> log2 << log2;
}

}  // namespace

std::size_t bytes_of_sums(const Problem& p) {
  const Sides s = sides_of(p);
  const std::int64_t workers = p.device.num_sms;
  if (takes_few(p) || tile_of(p).cols < kWideTile) return 0;  // clusters share their lists
  if (num_tiles(p, kWideTile) < workers) return 0;            // what the sums need takes longer
  const std::int64_t block_cols = p.k / s.block.cols;
  const std::int64_t block_rows = ceil_div(s.rows, s.block.rows);
  const std::int64_t groups = ceil_div(s.rows, kTileRows);
  // The merged lists of a group are no shorter than the longest of its rows.
  const auto stored = static_cast<std::int64_t>(s.density * static_cast<double>(block_rows) *
                                                static_cast<double>(block_cols));
  const std::int64_t entries = stored / ceil_div(kTileRows, s.block.rows);
  const std::int64_t fixed = Stretches::fixed(log2_of(s.block.cols));
  const std::int64_t longest = std::min(block_cols, stored) + fixed;
  const std::int64_t panels = ceil_div(s.cols, kWideTile);
  if (!Stretches::is_long(longest, (entries + groups * fixed) * panels, workers)) return 0;
  return kBytesOfFlags + static_cast<std::size_t>(workers) * kTileRows * kWideTile * sizeof(float);
}

std::int64_t num_tiles(const Problem& p, int tile_cols) {
  const Sides s = sides_of(p);
  return ceil_div(s.rows, kTileRows) * ceil_div(s.cols, tile_cols);
}

void run_one_sparse(const Problem& p, const BsrGemmArgs& args) {
  if (p.m == 0 || p.n == 0) return;
  const Sides s = sides_of(p);
  if (takes_few(p)) return run_few(p, args);
  const bool left = s.side == OperandSide::left;
  const BsrMatrixView& matrix = left ? *args.a.sparse : *args.b.sparse;

  KernelKey key = key_of(p, s);
  const TileChoice tile = tile_of(p);
  key.tile_cols = tile.cols;
  key.stages = tile.stages;

  Params params{};
  params.lists = lists_of(matrix, s.side, Grouping::similar, left ? args.a_plan : args.b_plan);
  params.log2_block_rows = log2_of(s.block.rows);
  params.log2_block_k = log2_of(s.block.cols);
  params.absent_col = static_cast<std::int32_t>(p.k / s.block.cols);
  params.rows = static_cast<std::int32_t>(s.rows);
  params.cols = static_cast<std::int32_t>(s.cols);
  params.num_tiles = static_cast<std::int32_t>(num_tiles(p, key.tile_cols));
  params.log2_split = log2_of(tile.split);
  const bool long_rows = bytes_of_sums(p) > 0, shared = long_rows && p.workspace_offered;
  if (shared) {
    params.sums_ready = static_cast<std::uint32_t*>(args.workspace);
    params.sums = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + kBytesOfFlags);
  }
  set_sparse(s, matrix.values, key, &params);
  const TensorView& dense = left ? args.b.dense : args.a.dense;
  set_dense(s, dense, key, &params);
  params.dealt_tiles = params.num_tiles;
  set_abreast(matrix, tile, &params);
  if (tile.cols == kWideTile && !shared) {
    set_narrow_panels(s, dense, key, p.device.num_sms, &params);
  }
  set_out(p, args, left, &params.result);

  if (log_enabled()) {
    log_once(
        cat("bsr_gemm sm90 tile=", kTileRows, "x", key.tile_cols, "x", kTileK, " inner=", key.inner,
            params.folded ? "x2" : "", " sparse=", key.sparse == Major::k ? "k" : "rows",
            " dense=", key.dense == Major::k ? "k" : "cols", " tiles=", params.dealt_tiles,
            " stages=", tile.stages, " split=", tile.split,
            " abreast=", params.panels_abreast > 0 ? 1 << params.log2_abreast : 1, " long_rows=",
            !long_rows ? "none"
            : shared   ? "shared"
                       : "whole"));
  }
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (shared) {
    cuda_check(cudaMemsetAsync(params.sums_ready, 0, kBytesOfFlags, stream), "bsr_gemm: sm90");
  }
  const auto launch = key.inner == 16   ? (shared ? launch_long_16 : launch_16)
                      : key.inner == 32 ? (shared ? launch_long_32 : launch_32)
                                        : (shared ? launch_long_64 : launch_64);
  launch(key, params, p.device.num_sms, stream);
}

}  // namespace sparsek::bsr::sm90
