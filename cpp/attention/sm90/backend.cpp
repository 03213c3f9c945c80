#include <algorithm>
#include <cmath>

#include "attention/backends.h"
#include "attention/base2.h"
#include "attention/fused.h"
#include "attention/pack_gqa.h"
#include "attention/sm90/choice.h"
#include "attention/weights/weights.h"
#include "core/tensor_cores.h"
#include "core/workspace.h"
#include "primitives/tensor_map.h"

namespace sparsek::attn::sm90 {
namespace {

constexpr std::size_t kProgressBytes = 256;
constexpr int kRowsOfWarp = 16;  // of a tile, stored alone (tma_store.cuh)

/// The problem that is computed in place of `p`, made in `memory`, or `p` itself.
const Problem& pack(const Problem& p, std::optional<Problem>* memory) {
  return packs_gqa(p) ? pack_gqa(p, memory) : pack_heads(p, memory);
}

Reason available() { return why_no_gpu(90); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_sm90(p.device, p.dtype)) return reason;
  if (Reason reason = why_not_fused(p)) return reason;
  if (!(p.scale > 0) || !std::isfinite(p.scale)) {
    return cat("scale is ", p.scale, ", expected a positive finite number");
  }
  if (Reason reason = why_not_length(p)) return reason;
  if (p.has_mask && (p.q_block % 64 != 0 || p.kv_block % kGranule != 0)) {
    return cat("mask blocks are ", p.q_block, " x ", p.kv_block, ", expected multiples of 64 x ",
               kGranule);
  }
  const struct {
    const char* name;
    int alignment;
  } rows[] = {{"q", p.q_alignment}, {"k", p.k_alignment}, {"v", p.v_alignment}};
  for (const auto& row : rows) {
    if (row.alignment < 16) {
      return cat(row.name, " has rows at multiples of ", row.alignment,
                 " bytes, expected 16 (TMA), and no negative strides");
    }
  }
  std::optional<Problem> packed;
  if (choose(pack(p, &packed)).num_tiles > std::int64_t{0x7fffffff}) {
    return cat("batch * heads is ", p.batch * p.num_q_heads,
               ", too many tiles to count in 32 bits");
  }
  return std::nullopt;
}

/// Of the workspace: the progress and the order of the tiles.
std::size_t bytes_of_schedule(const Problem& p, const Choice& choice) {
  if (!choice.has_progress()) return 0;
  const std::int64_t order = p.has_mask ? choice.num_tiles * 4 : 0;
  return kProgressBytes + aligned(static_cast<std::size_t>(order));
}

std::size_t bytes_of_fused(const Problem& asked) {
  std::optional<Problem> packed;
  const Problem& p = pack(asked, &packed);
  const Choice choice = choose(p);
  const std::size_t bytes = bytes_of_schedule(p, choice);
  if (choice.shares.tiles == 0) return bytes;
  return bytes + bytes_of_shared_parts(p, choice.shares, rows_of(*choice.kernel, p));
}

std::size_t workspace_bytes(const Problem& p) {
  return workspace_bytes_with_weights(p, bytes_of_fused(p));
}

/// A (B, S, H, D) tensor for TMA.
CUtensorMap map_of(const char* name, const TensorView& tensor, int box_columns, int box_rows) {
  const auto axis = [&](int index, int box) {
    return MapAxis{tensor.shape[index], tensor.stride[index], box};
  };
  return make_tensor_map(name, tensor.dtype, tensor.data,
                         {axis(3, box_columns), axis(1, box_rows), axis(2, 1), axis(0, 1)});
}

/// A (B, S, H, D) tensor without TMA.
Operand operand_of(const TensorView& tensor) {
  return {tensor.data, tensor.stride[0], tensor.stride[2], tensor.stride[1]};
}

/// Q as the kernels for packed heads read it.
CUtensorMap map_of_packed(const TensorView& q, const Rows& rows, int box_columns) {
  const std::int32_t heads = rows.heads.value();
  return make_tensor_map("q", q.dtype, q.data,
                         {{q.shape[3], 1, box_columns},
                          {heads, q.stride[2], heads},
                          {q.shape[1], q.stride[1], rows.of_tile / heads},
                          {q.shape[2] / heads, q.stride[2] * heads, 1},
                          {q.shape[0], q.stride[0], 1}});
}

Params make_params(const Problem& p, const AttentionArgs& args, const Choice& choice) {
  const Kernel& kernel = *choice.kernel;
  Params params;
  params.pieces = make_piece_grid(
      kernel.tile_kv, p.has_mask ? static_cast<std::int32_t>(p.kv_block) : kernel.tile_kv);
  params.rows = rows_of(kernel, p);
  params.q = kernel.packs ? map_of_packed(args.q, params.rows, kernel.box_columns_k)
                          : map_of("q", args.q, kernel.box_columns_k, kernel.box_rows_q);
  if (p.kv_len > 0) {  // else nothing is read
    params.k = map_of("k", args.k, kernel.box_columns_k, params.pieces.keys);
    params.v = map_of("v", args.v, kernel.box_columns_v, params.pieces.keys);
  }
  params.keys_read_once = choice.keys_read_once;
  params.q_rows = operand_of(args.q);
  params.k_rows = operand_of(args.k);
  params.head_dim = static_cast<std::int32_t>(p.head_dim);
  params.out = output_of(p, args);
  params.lse = lse_of(args);
  if (kernel.stores_by_tma && params.out.vectors) {
    params.o = map_of("out", args.out, kernel.box_columns_v, kRowsOfWarp);
  }
  params.band = p.band;
  params.mask = mask_of(p, args);
  if (p.has_mask) params.lists = make_list_grid(params.mask, kernel.tile_q, p.num_q_heads);
  params.q_len = static_cast<std::int32_t>(p.q_len);
  params.group = static_cast<std::int32_t>(p.num_q_heads / p.num_kv_heads);
  params.scale_log2 = p.scale * kLog2e;
  params.rescale_margin = std::min(kRescaleThreshold / params.scale_log2, 1e30f);
  params.schedule = {static_cast<std::int32_t>(choice.num_tiles),
                     choice.num_q_tiles,
                     p.num_q_heads,
                     choice.section,
                     choice.alternate,
                     choice.together,
                     choice.shares};
  auto* memory = static_cast<char*>(args.workspace);
  if (choice.shares.tiles > 0) {
    params.shared =
        shared_parts(p, choice.shares, params.rows, memory + bytes_of_schedule(p, choice));
  }
  if (choice.in_step) {
    params.schedule.stretches = &reinterpret_cast<Progress*>(memory)->stretches;
  }
  if (choice.counted) {
    params.schedule.progress = reinterpret_cast<Progress*>(memory);
    if (p.has_mask) {
      params.schedule.order = reinterpret_cast<std::int32_t*>(memory + kProgressBytes);
    }
  }
  return params;
}

void run_fused(const Problem& asked, const AttentionArgs& asked_args) {
  std::optional<Problem> packed;
  const Problem& p = pack(asked, &packed);
  const AttentionArgs args = pack_gqa(asked, p, asked_args);
  const auto stream = static_cast<cudaStream_t>(args.stream);
  const Choice choice = choose(p);
  if (log_enabled()) log_once(cat("attention sm90 ", to_string(choice)));
  const Params params = make_params(p, args, choice);
  const int first = choice.num_ctas * choice.kernel->teams;
  if (choice.counted && p.has_mask) {
    order_tiles(params, choice.kernel->tile_q, first, stream);
  } else if (choice.has_progress()) {
    start_tiles(static_cast<Progress*>(args.workspace), first, stream);
  }
  choice.kernel->launch(p.dtype, params, choice.num_ctas, stream);
  if (choice.shares.tiles > 0) {
    add_shared_parts(p, params.schedule, params.rows, params.shared, params.out, params.lse,
                     stream);
  }
}

void run(const Problem& p, const AttentionArgs& args) {
  run_with_weights(p, args, p.wants_weights ? bytes_of_fused(p) : 0, run_fused);
}

}  // namespace

AttentionBackend backend() { return {"sm90", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::attn::sm90
