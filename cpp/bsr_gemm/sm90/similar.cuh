#pragma once

#include <cstdint>

namespace sparsek::bsr::sm90 {

// Rows that are multiplied together read the dense rows of every k block that any of them has: the
// more they share, the less is read. Greedy, within windows of rows: a group begins with the
// longest row that is left, and takes the one that has most in common with it beyond what a row of
// its length has by chance, again and again.
// Reordering rows by similarity for dense units is from Labini et al., Blocking Sparse Matrices to
// Leverage Dense-Specific Multiplication, IA3 2022.

constexpr int kWindow = 512;      // rows, one for each thread of a CTA
static_assert(kWindow % 8 == 0);  // a group, of up to 8 rows, lies in one

/// Of the rows (columns for a right operand) of a matrix, by windows: which k blocks each has, and
/// where it comes in the groups.
struct SimilarArrays {
  std::uint32_t* bits;     // [window][word][kWindow], bit k % 32 of word k / 32
  std::uint32_t* seen;     // [window][word], twice: of the group, and what its last row added
  std::int32_t* order;     // the row at each place; beyond the last one num_rows
  std::int32_t* place_of;  // the inverse, for the lists of columns
};

/// The greatest of all threads' values; `scratch` holds one for each warp.
__device__ inline std::uint32_t cta_max(std::uint32_t value, std::uint32_t* scratch) {
  value = __reduce_max_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  static_assert(kWindow == 16 * 32);
  value = __reduce_max_sync(0xffffffffu, scratch[threadIdx.x % 16]);
  __syncthreads();
  return value;
}

/// Of what a row has in common with a group by chance, how much counts against it.
constexpr float kChance = 0.8f;

/// A CTA for each window, a thread for each row. Depends on the bits alone.
__global__ void __launch_bounds__(kWindow)
    similar_kernel(const SimilarArrays arrays, std::int64_t num_rows, std::int64_t num_words,
                   int rows_in_group) {
  __shared__ std::uint32_t scratch[kWindow / 32];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWindow;
  const int thread = threadIdx.x;
  const std::uint32_t* const bits = arrays.bits + blockIdx.x * num_words * kWindow;
  std::uint32_t* const seen = arrays.seen + blockIdx.x * num_words * 2;
  std::uint32_t* const added = seen + num_words;
  const float share = 1 / (static_cast<float>(num_words) * 32);  // of all k blocks
  // In [-1, 1], in 22 bits beside a row's number.
  const auto ranked = [&](float score) {
    return static_cast<std::uint32_t>((score + 1) * (1 << 20) + 1) << 10 |
           static_cast<std::uint32_t>(kWindow - 1 - thread);
  };
  bool left = first + thread < num_rows;
  std::uint32_t length = 0, common = 0, listed = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    length += __popc(bits[word * kWindow + thread]);
  }

  for (int place = 0; place < kWindow; ++place) {
    const bool begins = place % rows_in_group == 0;
    const float chance = kChance * share * static_cast<float>(listed);
    const float score = static_cast<float>(begins ? length : common) -
                        (begins ? 0 : chance * static_cast<float>(length));
    const std::uint32_t best = cta_max(left ? ranked(score * share) : 0, scratch);
    if (best == 0) {  // none is left
      if (thread >= place) {
        const std::int64_t at = first + thread;
        arrays.order[at] = static_cast<std::int32_t>(num_rows);
      }
      return;
    }
    const int row = kWindow - 1 - static_cast<int>(best & 1023);
    if (thread == row) {
      left = false;
      arrays.order[first + place] = static_cast<std::int32_t>(first + row);
      arrays.place_of[first + row] = static_cast<std::int32_t>(first + place);
    }
    if (begins) common = listed = 0;
    for (std::int64_t word = thread; word < num_words; word += kWindow) {
      const std::uint32_t has = bits[word * kWindow + row], had = begins ? 0 : seen[word];
      added[word] = has & ~had;
      seen[word] = has | had;
    }
    __syncthreads();
    for (std::int64_t word = 0; word < num_words; ++word) {
      const std::uint32_t more = added[word];
      listed += __popc(more);
      common += __popc(bits[word * kWindow + thread] & more);
    }
  }
}

/// A thread for each place: rows stay as they are.
__global__ void in_order_kernel(std::int32_t* order, std::int64_t num_rows,
                                std::int64_t num_places) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= num_places) return;
  order[place] = static_cast<std::int32_t>(min(place, num_rows));
}

}  // namespace sparsek::bsr::sm90
