#include <algorithm>
#include <cmath>

#include "attention/backends.h"
#include "attention/fused.h"
#include "attention/pack_gqa.h"
#include "attention/wmma/choice.h"
#include "core/tensor_cores.h"

namespace sparsek::attn::wmma {
namespace {

Reason available() { return why_no_gpu_from(80); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_tensor_cores(p.device, p.dtype)) return reason;
  if (Reason reason = why_not_fused(p)) return reason;
  if (Reason reason = why_not_length(p)) return reason;
  if (p.has_mask && (p.kv_block % kGranule != 0 || p.q_block > kMaxFusedLength)) {
    return cat("mask blocks are ", p.q_block, " x ", p.kv_block, ", expected a kv_block that is a ",
               "multiple of ", kGranule, " and a q_block of at most ", kMaxFusedLength);
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

std::size_t workspace_bytes(const Problem&) { return 0; }

/// A (B, S, H, D) tensor.
Input input_of(const char* name, const TensorView& tensor, int alignment) {
  // The stride of an axis with one element is never used, and may be anything.
  const std::int64_t row_stride = tensor.shape[1] > 1 ? tensor.stride[1] : 0;
  require(std::abs(row_stride) < std::int64_t{1} << 30, ErrorKind::unsupported,
          "attention: wmma: ", name, " has rows that are ", row_stride,
          " elements apart, expected less than 2^30");
  return {tensor.data,
          tensor.stride[0],
          tensor.stride[2],
          static_cast<std::int32_t>(2 * row_stride),
          static_cast<std::int32_t>(tensor.shape[3]),
          alignment >= 16};
}

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
  params.q_block = kernel.tile_q;
  if (p.has_mask) {
    params.q_block = static_cast<std::int32_t>(p.q_block);
    params.granules_in_block = static_cast<std::int32_t>(p.kv_block / kGranule);
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
  params.scale_log2 = std::abs(p.scale) * 1.4426950408889634f;
  params.rescale_margin = std::min(kRescaleThreshold / params.scale_log2, 1e30f);
  return params;
}

void run(const Problem& asked, const AttentionArgs& asked_args) {
  std::optional<Problem> packed;
  const Problem& p = pack_gqa(asked, &packed);
  const AttentionArgs args = pack_gqa(asked, p, asked_args);
  const Choice choice = choose(p);
  if (log_enabled()) log_once(cat("attention wmma ", to_string(choice)));
  choice.kernel->launch(p.dtype, make_params(p, args, choice),
                        static_cast<cudaStream_t>(args.stream));
}

}  // namespace

AttentionBackend backend() { return {"wmma", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::attn::wmma
