#pragma once

// The launches that one chunk is made of. All of them are enqueued on `stream`; none of them
// allocates.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/band.h"
#include "sparsek/block_mask.h"
#include "sparsek/tensor.h"

namespace sparsek::attn::sm90_unfused {

/// One chunk of the problem: queries [q_begin, q_begin + num_rows) of batches [batch_begin, ... +
/// num_batches) against keys [kv_begin, kv_begin + num_cols).
struct Chunk {
  std::int64_t batch_begin = 0;
  std::int64_t num_batches = 0;
  std::int64_t q_begin = 0;
  std::int64_t num_rows = 0;
  std::int64_t kv_begin = 0;
  std::int64_t num_cols = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int num_sms = 0;  // of the device: the size of a persistent grid
};

/// A (batch, head, row, column) array of the chunk with contiguous columns; strides in elements.
struct Matrices {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

/// scores = scale_log2 * q k^T, float16 whatever the inputs' dtype.
void scores_gemm(DType dtype, const Chunk& chunk, std::int64_t head_dim, float scale_log2,
                 const Matrices& q, const Matrices& k, const Matrices& scores, cudaStream_t stream);

/// out = weights v.
void values_gemm_64(DType dtype, const Chunk& chunk, std::int64_t value_dim,
                    const Matrices& weights, const Matrices& v, const Matrices& out,
                    cudaStream_t stream);
void values_gemm_128(DType dtype, const Chunk& chunk, std::int64_t value_dim,
                     const Matrices& weights, const Matrices& v, const Matrices& out,
                     cudaStream_t stream);

/// Which kv blocks each q block of a chunk may see, by position: 0 absent, 1 full, 2 + p the p-th
/// bitmap.
struct BlockTable {
  std::int32_t* entries =
      nullptr;  // (mask batches of the chunk, mask heads, num_q_blocks, num_kv_blocks)
  std::int64_t q_block_begin = 0;
  std::int64_t num_q_blocks = 0;
  std::int64_t num_kv_blocks = 0;
};

void fill_block_table(const BlockMaskView& mask, const Chunk& chunk, const BlockTable& table,
                      cudaStream_t stream);

/// Rows of `scores` (base-2 logits) become softmax probabilities of the inputs' dtype in place;
/// lse, where given, is written for them. q and k are read again for the few keys that hold most of
/// a row.
void softmax(DType dtype, const Chunk& chunk, const Band& band, const BlockMaskView* mask,
             const BlockTable& table, std::int64_t head_dim, float scale_log2, const Matrices& q,
             const Matrices& k, const Matrices& scores, const Matrices& lse, cudaStream_t stream);

/// For a chunk in which no query may see a key: zeros in out (and weights, where given), -inf in
/// lse where given.
void fill_empty(const Chunk& chunk, std::int64_t value_dim, std::int64_t kv_len,
                const Matrices& out, const Matrices& weights, const Matrices& lse,
                cudaStream_t stream);

}  // namespace sparsek::attn::sm90_unfused
