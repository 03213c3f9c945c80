#include <algorithm>

#include "attention/backends.h"
#include "attention/sm90_unfused/config.h"
#include "attention/sm90_unfused/kernels.h"
#include "core/tensor_cores.h"

namespace sparsek::attn::sm90_unfused {
namespace {

Reason available() { return why_no_gpu(90); }

Reason supports(const Problem& p) {
  if (Reason reason = why_not_sm90(p.device, p.dtype)) return reason;
  if (p.head_dim > kMaxHeadDim || p.head_dim % 8 != 0) {
    return cat("head_dim is ", p.head_dim, ", expected a multiple of 8 up to ", kMaxHeadDim);
  }
  if (p.value_dim > kMaxHeadDim || p.value_dim % 8 != 0) {
    return cat("value_dim is ", p.value_dim, ", expected a multiple of 8 up to ", kMaxHeadDim);
  }
  if (p.num_q_heads > 65535) {
    return cat("num_q_heads is ", p.num_q_heads, ", expected at most 65535 (a grid axis)");
  }
  const struct {
    const char* name;
    int alignment;
  } rows[] = {{"q", p.q_alignment},
              {"k", p.k_alignment},
              {"v", p.v_alignment},
              {"out", p.out_alignment},
              {"weights", p.weights_alignment}};
  for (const auto& row : rows) {
    if (row.alignment < 16) {
      return cat(row.name, " has rows at multiples of ", row.alignment,
                 " bytes, expected 16 (TMA), and no negative strides");
    }
  }
  return std::nullopt;
}

std::size_t workspace_bytes(const Problem& problem) {
  const Config config = choose_config(problem);
  return config.scores_bytes + config.table_bytes;
}

/// A (B, S, H, D) tensor from one batch and position on.
Matrices at(const TensorView& tensor, std::int64_t batch, std::int64_t position) {
  const std::int64_t offset = batch * tensor.stride[0] + position * tensor.stride[1];
  return {
      static_cast<char*>(tensor.data) + offset * static_cast<std::int64_t>(size_of(tensor.dtype)),
      tensor.stride[0], tensor.stride[2], tensor.stride[1]};
}

/// A (B, H, Sq, ...) tensor from one batch and query on; nothing when it was not given.
Matrices at_query(const TensorView& tensor, std::int64_t batch, std::int64_t query) {
  if (!tensor.given()) return {};
  const std::int64_t offset = batch * tensor.stride[0] + query * tensor.stride[2];
  return {
      static_cast<char*>(tensor.data) + offset * static_cast<std::int64_t>(size_of(tensor.dtype)),
      tensor.stride[0], tensor.stride[1], tensor.stride[2]};
}

BlockTable make_table(const Problem& p, const Config& config, const Chunk& chunk, void* workspace) {
  BlockTable table;
  table.entries =
      reinterpret_cast<std::int32_t*>(static_cast<char*>(workspace) + config.scores_bytes);
  table.q_block_begin = chunk.q_begin / p.q_block;
  table.num_q_blocks = (chunk.q_begin + chunk.num_rows - 1) / p.q_block - table.q_block_begin + 1;
  table.num_kv_blocks = (p.kv_len + p.kv_block - 1) / p.kv_block;
  return table;
}

void run_chunk(const Problem& p, const AttentionArgs& args, const Config& config,
               const Chunk& chunk, cudaStream_t stream) {
  const Matrices q = at(args.q, chunk.batch_begin, chunk.q_begin);
  const Matrices k = at(args.k, chunk.batch_begin, chunk.kv_begin);
  const Matrices v = at(args.v, chunk.batch_begin, chunk.kv_begin);
  const Matrices out = at(args.out, chunk.batch_begin, chunk.q_begin);
  const Matrices lse = at_query(args.lse, chunk.batch_begin, chunk.q_begin);
  Matrices scores = at_query(args.weights, chunk.batch_begin, chunk.q_begin);
  if (chunk.num_cols <= 0) {
    return fill_empty(chunk, p.value_dim, p.kv_len, out, scores, lse, stream);
  }
  if (!p.wants_weights) {
    scores = {args.workspace, chunk.num_heads * chunk.num_rows * config.row_elements,
              chunk.num_rows * config.row_elements, config.row_elements};
  }
  BlockTable table;
  if (p.has_mask) {
    table = make_table(p, config, chunk, args.workspace);
    fill_block_table(*args.mask, chunk, table, stream);
  }
  constexpr float kLog2e = 1.4426950408889634f;
  const float scale_log2 = p.scale * kLog2e;
  scores_gemm(p.dtype, chunk, p.head_dim, scale_log2, q, k, scores, stream);
  softmax(p.dtype, chunk, p.band, args.mask, table, p.head_dim, scale_log2, q, k, scores, lse,
          stream);
  const auto values_gemm = config.tile_values == 64 ? values_gemm_64 : values_gemm_128;
  values_gemm(p.dtype, chunk, p.value_dim, scores, v, out, stream);
}

void run(const Problem& p, const AttentionArgs& args) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  const Config config = choose_config(p);
  if (log_enabled()) log_once(cat("attention sm90_unfused ", to_string(config)));

  Chunk chunk;
  chunk.num_heads = static_cast<int>(p.num_q_heads);
  chunk.num_kv_heads = static_cast<int>(p.num_kv_heads);
  chunk.num_sms = p.device.num_sms;
  for (std::int64_t batch = 0; batch < p.batch; batch += config.chunk_batches) {
    chunk.batch_begin = batch;
    chunk.num_batches = std::min(config.chunk_batches, p.batch - batch);
    for (std::int64_t query = 0; query < p.q_len; query += config.chunk_rows) {
      chunk.q_begin = query;
      chunk.num_rows = std::min(config.chunk_rows, p.q_len - query);
      // Keys that causal or window hides from the whole chunk are left out, unless their zero
      // weights are wanted.
      const bool all_keys = p.wants_weights;
      chunk.kv_begin = all_keys ? 0 : p.band.begin(query) / 8 * 8;
      const std::int64_t kv_end = all_keys ? p.kv_len : p.band.end(query + chunk.num_rows - 1);
      chunk.num_cols = kv_end - chunk.kv_begin;
      run_chunk(p, args, config, chunk, stream);
    }
  }
}

}  // namespace

AttentionBackend backend() { return {"sm90_unfused", available, supports, workspace_bytes, run}; }

}  // namespace sparsek::attn::sm90_unfused
