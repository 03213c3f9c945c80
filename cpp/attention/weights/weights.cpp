#include "attention/weights/weights.h"

#include <algorithm>

#include "attention/base2.h"
#include "attention/fused.h"
#include "attention/weights/config.h"
#include "attention/weights/cut.h"
#include "core/integers.h"
#include "core/log.h"
#include "core/message.h"
#include "core/workspace.h"

namespace sparsek::attn {
namespace {

using weights::Cut;

std::int64_t num_rows(const Problem& p) { return p.batch * p.num_q_heads * p.q_len; }

std::size_t bytes_of_floats(std::int64_t count) {
  return aligned(static_cast<std::size_t>(count) * sizeof(float));
}

/// Of the lse in the workspace, where the caller wants none.
std::size_t bytes_of_lse(const Problem& p) {
  return p.wants_lse ? 0 : bytes_of_floats(num_rows(p));
}

weights::Params make_params(const Problem& p, const AttentionArgs& args, const Cut& cut,
                            void* sums) {
  weights::Params params;
  params.q = input_of("q", args.q, p.q_alignment);
  params.k = input_of("k", args.k, p.k_alignment);
  params.weights = {args.weights.data,
                    args.weights.stride[0],
                    args.weights.stride[1],
                    args.weights.stride[2],
                    static_cast<std::int32_t>(p.kv_len),
                    p.weights_alignment >= 16};
  params.lse = lse_of(args);
  params.sums = static_cast<float*>(sums);
  params.num_rows = num_rows(p);
  params.band = p.band;
  params.mask = mask_of(p, args);
  params.lists = p.has_mask;
  if (p.has_mask) params.kv_block = std::min(p.kv_block, kMaxFusedLength);  // longer: one block
  params.q_block = static_cast<std::int32_t>(cut.q_block);
  params.q_len = static_cast<std::int32_t>(p.q_len);
  params.num_heads = static_cast<std::int32_t>(p.num_q_heads);
  params.group = static_cast<std::int32_t>(p.num_q_heads / p.num_kv_heads);
  params.tiles_in_block = static_cast<std::int32_t>(cut.tiles_in_block);
  params.num_q_tiles = static_cast<std::int32_t>(cut.num_q_tiles);
  params.num_parts = static_cast<std::int32_t>(cut.num_parts);
  params.keys_in_part = static_cast<std::int32_t>(cut.keys_in_part);
  params.scale_log2 = p.scale * kLog2e;
  return params;
}

void write_weights(const Problem& p, const AttentionArgs& args, void* sums) {
  if (p.kv_len == 0) return;
  const Cut cut = weights::cut_of(p);
  if (log_enabled()) {
    log_once(cat("attention weights head_dim=", cut.head_dim, " tile=", cut.tile_q, "x",
                 weights::kTileKv, " parts=", cut.num_parts,
                 " ctas=", cut.num_tiles * cut.num_parts));
  }
  cut.launch(p.dtype, make_params(p, args, cut, sums), static_cast<unsigned>(cut.num_tiles),
             static_cast<cudaStream_t>(args.stream));
}

}  // namespace

std::size_t workspace_bytes_with_weights(const Problem& p, std::size_t fused_bytes) {
  if (!p.wants_weights) return fused_bytes;
  return aligned(fused_bytes) + bytes_of_lse(p) +
         bytes_of_floats(num_rows(p) * weights::cut_of(p).num_parts);
}

void run_with_weights(const Problem& p, const AttentionArgs& args, std::size_t fused_bytes,
                      void (*run_fused)(const Problem&, const AttentionArgs&)) {
  if (!p.wants_weights) return run_fused(p, args);
  char* const memory = static_cast<char*>(args.workspace) + aligned(fused_bytes);
  AttentionArgs with_lse = args;
  if (!args.lse.given()) {
    with_lse.lse =
        contiguous_view(memory, DType::float32, p.device.device, {p.batch, p.num_q_heads, p.q_len});
  }
  run_fused(p, with_lse);
  write_weights(p, with_lse, memory + bytes_of_lse(p));
}

}  // namespace sparsek::attn
