#include "attention/block_lists.h"
#include "attention/sm90_unfused/config.h"
#include "attention/sm90_unfused/kernels.h"
#include "attention/sm90_unfused/packed.cuh"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::attn::sm90_unfused {
namespace {

constexpr float kLn2 = 0.693147180559945f;

enum class Masking {
  band,            // causal, window or nothing
  vec_in_block,    // kv_block is a multiple of eight: a Vec lies in one kv block
  block_per_score  // any other kv_block
};

struct SoftmaxParams {
  Chunk chunk;
  Band band;
  BlockMaskView mask;
  BlockTable table;
  Matrices scores;
  Matrices lse;  // no data: not wanted
};

/// What one query may see, in columns of the chunk.
struct RowMask {
  int begin = 0;
  int end = 0;
  const std::int32_t* blocks = nullptr;  // its row of the block table
  std::int64_t row_in_block = 0;

  __device__ std::uint32_t band_bits(int column) const {
    const auto ones_below = [column](int limit) {
      const int count = min(max(limit - column, 0), Vec::kSize);
      return (1u << count) - 1u;
    };
    return ones_below(end) & ~ones_below(begin);
  }
};

__device__ std::uint32_t bitmap_bits(const SoftmaxParams& p, const RowMask& row, std::int32_t entry,
                                     std::uint32_t key_in_block) {
  const std::uint32_t* words = bitmap_row(p.mask, entry - 2, row.row_in_block);
  return words[key_in_block / 32] >> (key_in_block % 32);
}

/// One bit for each of the eight scores from `column` on.
template <Masking kMasking>
__device__ std::uint32_t allowed_bits(const SoftmaxParams& p, const RowMask& row, int column) {
  std::uint32_t bits = row.band_bits(column);
  if (kMasking == Masking::band || bits == 0) return bits;
  const auto kv_block = static_cast<std::uint32_t>(p.mask.kv_block);
  const auto key = static_cast<std::uint32_t>(p.chunk.kv_begin) + column;
  if constexpr (kMasking == Masking::vec_in_block) {
    const std::int32_t entry = row.blocks[key / kv_block];
    if (entry == 0) return 0;
    return entry == 1 ? bits : bits & bitmap_bits(p, row, entry, key % kv_block);
  } else {
    for (int i = 0; i < Vec::kSize; ++i) {
      if (!(bits >> i & 1u)) continue;
      const std::int32_t entry = row.blocks[(key + i) / kv_block];
      const bool allowed =
          entry == 1 || (entry > 1 && (bitmap_bits(p, row, entry, (key + i) % kv_block) & 1u));
      if (!allowed) bits &= ~(1u << i);
    }
    return bits;
  }
}

template <class Element, Masking kMasking>
__device__ Vec masked_scores(const SoftmaxParams& p, const RowMask& row,
                             const std::uint16_t* scores, int column) {
  const std::uint32_t allowed = allowed_bits<kMasking>(p, row, column);
  // Nothing to see here: not even read.
  const int count = allowed == 0 ? 0 : static_cast<int>(p.chunk.num_cols) - column;
  Vec vec = load_vec<Element>(scores + column, count);
  erase<Element>(vec, allowed);
  return vec;
}

/// (row maximum, sum of 2^(score - maximum)) of a whole row or a part of it.
struct RowSum {
  float max = -INFINITY;
  float sum = 0.0f;

  /// What scores are shifted by: a row without keys must not compute inf - inf.
  __device__ float shift() const { return max == -INFINITY ? 0.0f : max; }
  __device__ float inverse() const { return max == -INFINITY ? 0.0f : 1.0f / sum; }
  __device__ float lse() const { return max == -INFINITY ? -INFINITY : (max + log2f(sum)) * kLn2; }
};

template <class Element>
__device__ float exp2_sum(const Vec& vec, float shift) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = Packed<Element>::to_float(Packed<Element>::from_bits(vec.word[i]));
    sum += ptx::exp2_approx(x.x - shift) + ptx::exp2_approx(x.y - shift);
  }
  return sum;
}

/// Replaces scores by probabilities.
template <class Element>
__device__ void normalise(Vec& vec, float shift, float inverse) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = Packed<Element>::to_float(Packed<Element>::from_bits(vec.word[i]));
    const auto pair = Packed<Element>::from_float(ptx::exp2_approx(x.x - shift) * inverse,
                                                  ptx::exp2_approx(x.y - shift) * inverse);
    vec.word[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

/// A row of at most 256 * kVecs scores, held in the registers of its warp.
template <class Element, Masking kMasking, int kVecs>
__device__ RowSum softmax_in_registers(const SoftmaxParams& p, const RowMask& row,
                                       std::uint16_t* scores, int lane) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  Vec vecs[kVecs];
  RowSum total;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    vecs[i] = masked_scores<Element, kMasking>(p, row, scores, (i * 32 + lane) * Vec::kSize);
  }
#pragma unroll
  for (int i = 0; i < kVecs; ++i) total.max = fmaxf(total.max, max_of<Element>(vecs[i]));
  total.max = warp_max(total.max);

  const float shift = total.shift();
  float probabilities[kVecs][Vec::kSize];
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 x = Packed<Element>::to_float(Packed<Element>::from_bits(vecs[i].word[j]));
      probabilities[i][2 * j] = ptx::exp2_approx(x.x - shift);
      probabilities[i][2 * j + 1] = ptx::exp2_approx(x.y - shift);
      total.sum += probabilities[i][2 * j] + probabilities[i][2 * j + 1];
    }
  }
  total.sum = warp_sum(total.sum);

  const float inverse = total.inverse();
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto pair = Packed<Element>::from_float(probabilities[i][2 * j] * inverse,
                                                    probabilities[i][2 * j + 1] * inverse);
      vecs[i].word[j] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
    const int column = (i * 32 + lane) * Vec::kSize;
    if (column < num_cols) store_vec(scores + column, vecs[i], num_cols - column);
  }
  return total;
}

/// A row of any length: read twice, written once.
template <class Element, Masking kMasking>
__device__ RowSum softmax_by_loop(const SoftmaxParams& p, const RowMask& row, std::uint16_t* scores,
                                  int lane) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  constexpr int kStep = 32 * Vec::kSize;
  RowSum mine;
  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    const Vec vec = masked_scores<Element, kMasking>(p, row, scores, column);
    const float previous = mine.max;
    mine.max = fmaxf(mine.max, max_of<Element>(vec));
    mine.sum = mine.sum * ptx::exp2_approx(previous - mine.shift()) +
               exp2_sum<Element>(vec, mine.shift());
  }
  RowSum total;
  total.max = warp_max(mine.max);
  total.sum = warp_sum(mine.sum * ptx::exp2_approx(mine.max - total.shift()));

  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    Vec vec = masked_scores<Element, kMasking>(p, row, scores, column);
    normalise<Element>(vec, total.shift(), total.inverse());
    store_vec(scores + column, vec, num_cols - column);
  }
  return total;
}

/// One warp per row. kVecs = 0: a row too long for registers.
template <class Element, Masking kMasking, int kVecs>
__global__ void __launch_bounds__(kSoftmaxWarps * 32, 2) softmax_kernel(const SoftmaxParams p) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * kSoftmaxWarps + threadIdx.x / 32;
  const int num_rows = static_cast<int>(p.chunk.num_rows);
  const int q = row % num_rows;
  const int head = row / num_rows % p.chunk.num_heads;
  const int batch = row / num_rows / p.chunk.num_heads;

  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (batch >= p.chunk.num_batches) return;

  RowMask mask;
  const std::int64_t query = p.chunk.q_begin + q;
  const auto to_column = [&p](std::int64_t key) {
    const std::int64_t column = key - p.chunk.kv_begin;
    return static_cast<int>(column < 0 ? 0 : column < p.chunk.num_cols ? column : p.chunk.num_cols);
  };
  mask.begin = to_column(p.band.begin(query));
  mask.end = to_column(p.band.end(query));
  if (kMasking != Masking::band) {
    const std::int64_t mask_batch = p.mask.num_batches == 1 ? 0 : batch;
    const std::int64_t mask_head = p.mask.num_heads == 1 ? 0 : head;
    const std::int64_t list = (mask_batch * p.mask.num_heads + mask_head) * p.table.num_q_blocks +
                              query / p.mask.q_block - p.table.q_block_begin;
    mask.blocks = p.table.entries + list * p.table.num_kv_blocks;
    mask.row_in_block = query % p.mask.q_block;
  }

  auto* scores = static_cast<std::uint16_t*>(p.scores.data) + batch * p.scores.batch_stride +
                 head * p.scores.head_stride + q * p.scores.row_stride;
  RowSum total;
  if constexpr (kVecs > 0) {
    total = softmax_in_registers<Element, kMasking, kVecs>(p, mask, scores, lane);
  } else {
    total = softmax_by_loop<Element, kMasking>(p, mask, scores, lane);
  }
  if (p.lse.data != nullptr && lane == 0) {
    static_cast<float*>(p.lse.data)[batch * p.lse.batch_stride + head * p.lse.head_stride +
                                    q * p.lse.row_stride] = total.lse();
  }
}

using SoftmaxKernel = void (*)(SoftmaxParams);

template <class Element, Masking kMasking>
SoftmaxKernel kernel_for_columns(std::int64_t num_cols) {
  if (num_cols <= 256) return softmax_kernel<Element, kMasking, 1>;
  if (num_cols <= 512) return softmax_kernel<Element, kMasking, 2>;
  if (num_cols <= 1024) return softmax_kernel<Element, kMasking, 4>;
  if (num_cols <= 2048) return softmax_kernel<Element, kMasking, 8>;
  return softmax_kernel<Element, kMasking, 0>;
}

template <class Element>
SoftmaxKernel kernel_for(Masking masking, std::int64_t num_cols) {
  switch (masking) {
    case Masking::band: return kernel_for_columns<Element, Masking::band>(num_cols);
    case Masking::vec_in_block: return kernel_for_columns<Element, Masking::vec_in_block>(num_cols);
    // Rare blocks: one kernel for every length.
    case Masking::block_per_score: return softmax_kernel<Element, Masking::block_per_score, 0>;
  }
  return nullptr;
}

}  // namespace

void softmax(DType dtype, const Chunk& chunk, const Band& band, const BlockMaskView* mask,
             const BlockTable& table, const Matrices& scores, const Matrices& lse,
             cudaStream_t stream) {
  const Masking masking = mask == nullptr               ? Masking::band
                          : mask->kv_block % Vec::kSize == 0 ? Masking::vec_in_block
                                                             : Masking::block_per_score;
  const SoftmaxKernel kernel = dtype == DType::float16
                                   ? kernel_for<__half>(masking, chunk.num_cols)
                                   : kernel_for<__nv_bfloat16>(masking, chunk.num_cols);
  SoftmaxParams params{chunk, band, mask ? *mask : BlockMaskView{}, table, scores, lse};
  const std::int64_t rows = chunk.num_batches * chunk.num_heads * chunk.num_rows;
  const auto grid = static_cast<unsigned>((rows + kSoftmaxWarps - 1) / kSoftmaxWarps);
  launch_dependent("attention: softmax", kernel, grid, kSoftmaxWarps * 32, stream, params);
}

}  // namespace sparsek::attn::sm90_unfused
