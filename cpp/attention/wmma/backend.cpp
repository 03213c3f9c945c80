#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/backends.h"
#include "attention/base2.h"
#include "attention/fused.h"
#include "attention/pack_gqa.h"
#include "attention/weights/weights.h"
#include "attention/wmma/choice.h"
#include "core/integers.h"
#include "core/tensor_cores.h"

namespace sparsek::attn::wmma {
namespace {

Reason available() { return why_no_gpu_from(80); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_tensor_cores(p.device, p.dtype)) return reason;
  if (Reason reason = why_not_fused(p)) return reason;
  if (Reason reason = why_not_length(p)) return reason;
  if (p.has_mask && std::max(p.q_block, p.kv_block) > kMaxFusedLength) {
    return cat("mask blocks are ", p.q_block, " x ", p.kv_block, ", expected at most ",
               kMaxFusedLength, " each way");
  }
  std::optional<Problem> packed;
  const Choice choice = choose(pack_gqa(p, &packed));
  if (choice.kernel == nullptr) {
    return cat(p.device.name, " has ", p.device.max_smem_per_block_bytes,
               " bytes of shared memory for a block, which no kernel for head_dim ", p.head_dim,
               " and value_dim ", p.value_dim, " fits");
  }
  if (choice.num_tiles > std::int64_t{0x7fffffff}) {
    return cat("batch * heads is ", p.batch * p.num_q_heads,
               ", too many tiles to count in 32 bits");
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem& p) { return workspace_bytes_with_weights(p, 0); }

Params make_params(const Problem& p, const AttentionArgs& args, const Choice& choice) {
  const Kernel& kernel = *choice.kernel;
  Params params;
  params.q = input_of("q", args.q, p.q_alignment);
  params.k = input_of("k", args.k, p.k_alignment);
  params.v = input_of("v", args.v, p.v_alignment);
  params.out = output_of(p, args);
  params.lse = lse_of(args);
  params.band = p.band;
  params.mask = mask_of(p, args);
  params.q_block = static_cast<std::int32_t>(choice.q_block);
  params.kv_block = std::numeric_limits<std::int32_t>::max();
  if (p.has_mask) {
    params.kv_block = static_cast<std::int32_t>(p.kv_block);
    params.granules_in_block =
        static_cast<std::int32_t>(ceil_div(p.kv_block, std::int64_t{kGranule}));
  }
  params.lists = p.has_mask;
  params.q_len = static_cast<std::int32_t>(p.q_len);
  params.group = static_cast<std::int32_t>(p.num_q_heads / p.num_kv_heads);
  params.tiles_in_block = static_cast<std::int32_t>(choice.tiles_in_block);
  params.num_q_tiles = static_cast<std::int32_t>(choice.num_q_tiles);
  params.num_heads = static_cast<std::int32_t>(p.num_q_heads);
  params.all_heads = static_cast<std::int32_t>(p.num_q_heads * p.batch);
  params.section = choice.section;
  params.negate_q = p.scale < 0;
  // Not 0, which would make no number of the -inf of a key that is not seen.
  params.scale_log2 = std::max(std::abs(p.scale) * kLog2e, std::numeric_limits<float>::min());
  params.rescale_margin = std::min(kRescaleThreshold / params.scale_log2, 1e30f);
  return params;
}

void run_fused(const Problem& asked, const AttentionArgs& asked_args) {
  std::optional<Problem> packed;
  const Problem& p = pack_gqa(asked, &packed);
  const AttentionArgs args = pack_gqa(asked, p, asked_args);
  const Choice choice = choose(p);
  if (log_enabled()) log_once(cat("attention wmma ", to_string(choice)));
  choice.kernel->launch(p.dtype, make_params(p, args, choice),
                        static_cast<cudaStream_t>(args.stream));
}

void run(const Problem& p, const AttentionArgs& args) { run_with_weights(p, args, 0, run_fused); }

}  // namespace

AttentionBackend backend() { return {"wmma", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::attn::wmma
