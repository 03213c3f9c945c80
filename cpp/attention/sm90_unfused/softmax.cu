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
  Matrices q, k;
  int head_dim;
  float scale_log2;
};

/// The row of a warp: where it lies, and what its query may see, in columns of the chunk.
struct Row {
  int batch = 0;
  int head = 0;
  int q = 0;  // in the chunk
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

__device__ std::uint32_t bitmap_bits(const SoftmaxParams& p, const Row& row, std::int32_t entry,
                                     std::uint32_t key_in_block) {
  const std::uint32_t* words = bitmap_row(p.mask, entry - 2, row.row_in_block);
  return words[key_in_block / 32] >> (key_in_block % 32);
}

/// One bit for each of the eight scores from `column` on.
template <Masking kMasking>
__device__ std::uint32_t allowed_bits(const SoftmaxParams& p, const Row& row, int column) {
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

/// Eight scores, those that may not be seen as -inf. kSaturate: infinities come back to the largest float16.
template <Masking kMasking, bool kSaturate>
__device__ Vec masked_scores(const SoftmaxParams& p, const Row& row,
                             const std::uint16_t* scores, int column) {
  Vec vec;
  // Most vectors lie whole inside the band: for them, one load and no arithmetic on bits.
  if (kMasking == Masking::band && column >= row.begin && column + Vec::kSize <= row.end) {
    vec = *reinterpret_cast<const Vec*>(scores + column);
    if (kSaturate) saturate(vec);
    return vec;
  }
  const std::uint32_t allowed = allowed_bits<kMasking>(p, row, column);
  // Nothing to see here: not even read.
  const int count = allowed == 0 ? 0 : static_cast<int>(p.chunk.num_cols) - column;
  vec = load_vec(scores + column, count);
  if (kSaturate) saturate(vec);
  if (allowed != 0xffu) erase(vec, allowed);
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

/// The eight 2^(score - shift).
struct Exponentials {
  float value[Vec::kSize];

  Exponentials() = default;
  __device__ Exponentials(const Vec& vec, float shift) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = __half22float2(score_pair(vec.word[i]));
      value[2 * i] = ptx::exp2_approx(x.x - shift);
      value[2 * i + 1] = ptx::exp2_approx(x.y - shift);
    }
  }
  __device__ float sum() const {
    return ((value[0] + value[1]) + (value[2] + value[3])) + ((value[4] + value[5]) + (value[6] + value[7]));
  }
  template <class Element>
  __device__ Vec probabilities(float inverse) const {
    Vec vec;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      vec.word[i] =
          probability_bits(Element{}, value[2 * i] * inverse, value[2 * i + 1] * inverse);
    }
    return vec;
  }
};

// A score of float16 is off by up to 2^-9 around 8, which an average over many keys hides and one key that holds most of a
// row does not. In a row whose sum is below kPeakedSum, the keys that hold at least a kLargeShare of it get their score
// again, from q and k in float32. At most 1 / kLargeShare keys do: one for each lane of the warp.
constexpr float kPeakedSum = 16.0f;
constexpr float kLargeShare = 1.0f / 32;

/// One large key of a row; lane i holds the i-th.
struct ExactScore {
  int column = -1;
  float score = -INFINITY;
};

/// The base-2 logit of the row's query and a key, in float32; the whole warp takes part.
template <class Element>
__device__ float exact_score(const SoftmaxParams& p, const Row& row, int key, int lane) {
  const int kv_head = row.head / (p.chunk.num_heads / p.chunk.num_kv_heads);
  const auto* q = static_cast<const Element*>(p.q.data) + row.batch * p.q.batch_stride +
                  row.head * p.q.head_stride + row.q * p.q.row_stride;
  const auto* k = static_cast<const Element*>(p.k.data) + row.batch * p.k.batch_stride +
                  kv_head * p.k.head_stride + key * p.k.row_stride;
  float sum = 0.0f;
  for (int d = lane; d < p.head_dim; d += 32) sum += float(q[d]) * float(k[d]);
  return warp_sum(sum) * p.scale_log2;
}

/// Scores the large keys of a row again; `total` becomes that of the corrected row.
template <class Element, Masking kMasking>
__device__ ExactScore score_large_keys(const SoftmaxParams& p, const Row& row,
                                       const std::uint16_t* scores, int lane, RowSum* total) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  const float threshold = kLargeShare * total->sum;
  const float shift = total->shift();
  ExactScore mine;
  float others = 0.0f;
  int found = 0;
  for (int step = 0; step < num_cols; step += 32 * Vec::kSize) {
    const int column = step + lane * Vec::kSize;
    std::uint32_t large = 0;
    if (column < num_cols) {
      const Exponentials x(masked_scores<kMasking, true>(p, row, scores, column), shift);
#pragma unroll
      for (int i = 0; i < Vec::kSize; ++i) {
        const bool is_large = x.value[i] >= threshold;
        large |= static_cast<std::uint32_t>(is_large) << i;
        if (!is_large) others += x.value[i];
      }
    }
    while (const unsigned lanes = __ballot_sync(0xffffffffu, large != 0)) {
      const int owner = __ffs(lanes) - 1;
      const int key = __shfl_sync(0xffffffffu, column + __ffs(large) - 1, owner);
      const float score = exact_score<Element>(p, row, key, lane);
      if (lane == found) mine = {key, score};
      if (lane == owner) large &= large - 1;
      ++found;
    }
  }
  total->max = warp_max(mine.score);
  total->sum = warp_sum(others) * ptx::exp2_approx(shift - total->shift()) +
               warp_sum(ptx::exp2_approx(mine.score - total->shift()));
  return mine;
}

/// A row of any length: read twice, written once; a peaked one is read once more.
template <class Element, Masking kMasking>
__device__ __noinline__ RowSum softmax_by_loop(const SoftmaxParams& p, Row row, std::uint16_t* scores,
                                               int lane) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  constexpr int kStep = 32 * Vec::kSize;
  RowSum mine;
  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    const Vec vec = masked_scores<kMasking, true>(p, row, scores, column);
    const float previous = mine.max;
    mine.max = fmaxf(mine.max, max_of(vec));
    mine.sum = mine.sum * ptx::exp2_approx(previous - mine.shift()) +
               Exponentials(vec, mine.shift()).sum();
  }
  RowSum total;
  total.max = warp_max(mine.max);
  total.sum = warp_sum(mine.sum * ptx::exp2_approx(mine.max - total.shift()));

  ExactScore exact;
  if (total.max > -INFINITY && total.sum < kPeakedSum) {
    exact = score_large_keys<Element, kMasking>(p, row, scores, lane, &total);
  }
  for (int column = lane * Vec::kSize; column < num_cols; column += kStep) {
    const Exponentials x(masked_scores<kMasking, true>(p, row, scores, column), total.shift());
    store_vec(scores + column, x.template probabilities<Element>(total.inverse()), num_cols - column);
  }
  __syncwarp();  // the exact ones overwrite what another lane wrote
  if (exact.column >= 0) {
    const float x = ptx::exp2_approx(exact.score - total.shift()) * total.inverse();
    scores[exact.column] = static_cast<std::uint16_t>(probability_bits(Element{}, x, 0.0f));
  }
  return total;
}

/// A row of at most 256 * kVecs scores, held in the registers of its warp.
template <class Element, Masking kMasking, int kVecs>
__device__ RowSum softmax_in_registers(const SoftmaxParams& p, const Row& row,
                                       std::uint16_t* scores, int lane) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  // Every vector of the row is whole, seen or beyond the end: the loads need no arithmetic on bits.
  const bool plain = kMasking == Masking::band && row.begin == 0 && row.end == num_cols &&
                     num_cols % Vec::kSize == 0;
  RowSum total;
  Exponentials x[kVecs];
  {
    Vec vecs[kVecs];
    if (plain) {
#pragma unroll
      for (int i = 0; i < kVecs; ++i) {
        const int column = (i * 32 + lane) * Vec::kSize;
        vecs[i] = {kNegInfPair, kNegInfPair, kNegInfPair, kNegInfPair};
        if (column < num_cols) vecs[i] = *reinterpret_cast<const Vec*>(scores + column);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVecs; ++i) {
        vecs[i] = masked_scores<kMasking, false>(p, row, scores, (i * 32 + lane) * Vec::kSize);
      }
    }
#pragma unroll
    for (int i = 0; i < kVecs; ++i) total.max = fmaxf(total.max, max_of(vecs[i]));
    total.max = warp_max(total.max);
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      x[i] = Exponentials(vecs[i], total.shift());
      total.sum += x[i].sum();
    }
  }
  total.sum = warp_sum(total.sum);
  // Peaked, or without keys, or with scores past the largest float16 (the sum is NaN, or every score -inf).
  if (!(total.sum >= kPeakedSum)) {
    return softmax_by_loop<Element, kMasking>(p, row, scores, lane);
  }
  const float inverse = total.inverse();
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int column = (i * 32 + lane) * Vec::kSize;
    const Vec vec = x[i].template probabilities<Element>(inverse);
    if (column + Vec::kSize <= num_cols) {
      *reinterpret_cast<Vec*>(scores + column) = vec;
    } else if (column < num_cols) {
      store_vec(scores + column, vec, num_cols - column);
    }
  }
  return total;
}

/// One warp per row. kVecs = 0: a row too long for registers.
template <class Element, Masking kMasking, int kVecs>
__global__ void __launch_bounds__(kSoftmaxWarps * 32, kVecs == 8 ? 2 : 4) softmax_kernel(const __grid_constant__ SoftmaxParams p) {
  const int lane = threadIdx.x % 32;
  Row row;
  row.batch = blockIdx.z;
  row.head = blockIdx.y;
  row.q = blockIdx.x * kSoftmaxWarps + threadIdx.x / 32;

  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (row.q >= p.chunk.num_rows) return;

  const std::int64_t query = p.chunk.q_begin + row.q;
  const auto to_column = [&p](std::int64_t key) {
    const std::int64_t column = key - p.chunk.kv_begin;
    return static_cast<int>(column < 0 ? 0 : column < p.chunk.num_cols ? column : p.chunk.num_cols);
  };
  row.begin = to_column(p.band.begin(query));
  row.end = to_column(p.band.end(query));
  if constexpr (kMasking != Masking::band) {
    const std::int64_t mask_batch = p.mask.num_batches == 1 ? 0 : row.batch;
    const std::int64_t mask_head = p.mask.num_heads == 1 ? 0 : row.head;
    const std::int64_t list = (mask_batch * p.mask.num_heads + mask_head) * p.table.num_q_blocks +
                              query / p.mask.q_block - p.table.q_block_begin;
    row.blocks = p.table.entries + list * p.table.num_kv_blocks;
    row.row_in_block = query % p.mask.q_block;
  }

  auto* scores = static_cast<std::uint16_t*>(p.scores.data) + row.batch * p.scores.batch_stride +
                 row.head * p.scores.head_stride + row.q * p.scores.row_stride;
  RowSum total;
  if constexpr (kVecs > 0) {
    total = softmax_in_registers<Element, kMasking, kVecs>(p, row, scores, lane);
  } else {
    total = softmax_by_loop<Element, kMasking>(p, row, scores, lane);
  }
  if (p.lse.data != nullptr && lane == 0) {
    static_cast<float*>(p.lse.data)[row.batch * p.lse.batch_stride + row.head * p.lse.head_stride +
                                    row.q * p.lse.row_stride] = total.lse();
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
             const BlockTable& table, std::int64_t head_dim, float scale_log2, const Matrices& q,
             const Matrices& k, const Matrices& scores, const Matrices& lse, cudaStream_t stream) {
  const Masking masking = mask == nullptr               ? Masking::band
                          : mask->kv_block % Vec::kSize == 0 ? Masking::vec_in_block
                                                             : Masking::block_per_score;
  const SoftmaxKernel kernel = dtype == DType::float16
                                   ? kernel_for<__half>(masking, chunk.num_cols)
                                   : kernel_for<__nv_bfloat16>(masking, chunk.num_cols);
  const SoftmaxParams params{chunk, band, mask ? *mask : BlockMaskView{}, table, scores, lse, q, k,
                             static_cast<int>(head_dim), scale_log2};
  const dim3 grid(static_cast<unsigned>((chunk.num_rows + kSoftmaxWarps - 1) / kSoftmaxWarps),
                  static_cast<unsigned>(chunk.num_heads), static_cast<unsigned>(chunk.num_batches));
  launch_dependent("attention: softmax", kernel, grid, kSoftmaxWarps * 32, stream, params);
}

}  // namespace sparsek::attn::sm90_unfused
