#include "attention/sm90_unfused/config.h"
#include "attention/sm90_unfused/row_softmax.cuh"
#include "primitives/launch.cuh"

namespace sparsek::attn::sm90_unfused {
namespace {

/// At most 256 * kVecs scores of a row, in the registers of its warp.
template <Masking kMasking, int kVecs>
__device__ void load_scores(const SoftmaxParams& p, const Row& row, int lane, Vec (&vecs)[kVecs]) {
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  // Every vector of the row is whole, seen or beyond the end: the loads need no arithmetic on bits.
  const bool plain = kMasking == Masking::band && row.begin == 0 && row.end == num_cols &&
                     num_cols % Vec::kSize == 0;
  if (plain) {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      const int column = (i * 32 + lane) * Vec::kSize;
      vecs[i] = {kNegInfPair, kNegInfPair, kNegInfPair, kNegInfPair};
      if (column < num_cols) vecs[i] = *reinterpret_cast<const Vec*>(row.scores + column);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      vecs[i] = masked_scores<kMasking, false>(p, row, (i * 32 + lane) * Vec::kSize);
    }
  }
}

/// Turns scores into 2^(score - maximum), still float16: half the registers, and so twice the rows
/// in flight.
template <int kVecs>
__device__ RowSum exponentiate(Vec (&vecs)[kVecs]) {
  RowSum total;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) total.max = fmaxf(total.max, max_of(vecs[i]));
  total.max = warp_max(total.max);
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const Exponentials x(vecs[i], total.shift());
    total.sum += x.sum();
    vecs[i] = x.template probabilities<__half>(1.0f);
  }
  total.sum = warp_sum(total.sum);
  return total;
}

template <class Element, int kVecs>
__device__ void store_probabilities(const Row& row, int num_cols, int lane,
                                    const Vec (&exponentials)[kVecs], float inverse) {
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int column = (i * 32 + lane) * Vec::kSize;
    const Vec vec = Exponentials(exponentials[i]).template probabilities<Element>(inverse);
    if (column + Vec::kSize <= num_cols) {
      *reinterpret_cast<Vec*>(row.scores + column) = vec;
    } else if (column < num_cols) {
      store_vec(row.scores + column, vec, num_cols - column);
    }
  }
}

__device__ void store_lse(const SoftmaxParams& p, const Row& row, int lane, const RowSum& total) {
  if (p.lse.data == nullptr || lane != 0) return;
  static_cast<float*>(p.lse.data)[row.batch * p.lse.batch_stride + row.head * p.lse.head_stride +
                                  row.q * p.lse.row_stride] = total.lse();
}

/// A row that fits the registers of its warp: read once, written once.
template <class Element, Masking kMasking, int kVecs>
__device__ RowSum softmax_in_registers(const SoftmaxParams& p, const Row& row, int lane) {
  Vec vecs[kVecs];
  load_scores<kMasking>(p, row, lane, vecs);
  const RowSum total = exponentiate(vecs);
  const int num_cols = static_cast<int>(p.chunk.num_cols);
  if (total.sum >= kPeakedSum) {
    store_probabilities<Element>(row, num_cols, lane, vecs, total.inverse());
    return total;
  }
  // Without keys, or with scores past the largest float16: the sum is NaN, or every score -inf.
  if (!(total.sum >= 0.5f)) return softmax_by_loop<Element, kMasking>(p, row, lane);

  LargeKeys keys;
  float others = 0.0f;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    keys.add(large_bits(Exponentials(vecs[i]), total.sum / kPeakedSum, &others),
             (i * 32 + lane) * Vec::kSize, lane);
  }
  keys.template rescore<Element>(p, row);
  const RowSum corrected = keys.corrected(warp_sum(others), total.shift());
  const float inverse = corrected.inverse() * ptx::exp2_approx(total.shift() - corrected.shift());
  store_probabilities<Element>(row, num_cols, lane, vecs, inverse);
  keys.template store<Element>(row, corrected);
  return corrected;
}

/// One warp per row. kVecs = 0: rows too long for registers.
template <class Element, Masking kMasking, int kVecs>
__global__ void __launch_bounds__(kSoftmaxWarps * 32,
                                  softmax_ctas_per_sm(kVecs, kMasking != Masking::band))
    softmax_kernel(const __grid_constant__ SoftmaxParams p) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int lane = threadIdx.x % 32;
  const int q = blockIdx.x * kSoftmaxWarps + threadIdx.x / 32;
  if (q >= p.chunk.num_rows) return;
  const Row row = find_row<kMasking>(p, q);
  if constexpr (kVecs == 0) {
    store_lse(p, row, lane, softmax_by_loop<Element, kMasking>(p, row, lane));
  } else {
    store_lse(p, row, lane, softmax_in_registers<Element, kMasking, kVecs>(p, row, lane));
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
  const Masking masking = mask == nullptr                    ? Masking::band
                          : mask->kv_block % Vec::kSize == 0 ? Masking::vec_in_block
                                                             : Masking::block_per_score;
  const SoftmaxKernel kernel = dtype == DType::float16
                                   ? kernel_for<__half>(masking, chunk.num_cols)
                                   : kernel_for<__nv_bfloat16>(masking, chunk.num_cols);
  const SoftmaxParams params{chunk, band, mask ? *mask : BlockMaskView{}, table,     scores, lse,
                             q,     k,    static_cast<int>(head_dim),     scale_log2};
  const dim3 grid(static_cast<unsigned>((chunk.num_rows + kSoftmaxWarps - 1) / kSoftmaxWarps),
                  static_cast<unsigned>(chunk.num_heads), static_cast<unsigned>(chunk.num_batches));
  launch_dependent("attention: softmax", kernel, grid, kSoftmaxWarps * 32, 0, stream, params);
}

}  // namespace sparsek::attn::sm90_unfused
