// The merged block lists of groups of block rows (of block columns for a right operand), longest
// group first: count the entries of each group, place the groups, fill their lists, and say which
// CTA takes which tiles; for products with few columns also what each of their CTAs does.

#include "bsr_gemm/sm90/few_deal.cuh"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/plan_arrays.cuh"
#include "bsr_gemm/sm90/schedule.cuh"
#include "bsr_gemm/sm90/similar.cuh"
#include "bsr_gemm/sm90/stretches.h"
#include "core/cuda_check.h"
#include "core/integers.h"

namespace sparsek::bsr::sm90 {
namespace {

constexpr int kListThreads = 256;
constexpr int kTable = 8192;  // blocks of one group and a stretch of k, in shared memory

struct Structure {
  const std::int64_t* row_offsets;
  const std::int32_t* col_indices;
  const std::int32_t* value_indices;
  std::int64_t nnz;
  std::int64_t block_rows, block_cols;  // of the whole matrix
  bool by_cols;                         // groups of block columns
  int rows_in_group;
  // The row at each place of the groups, and the inverse; null: as they come.
  const std::int32_t* order;
  const std::int32_t* place_of;
};

__device__ std::int32_t value_of(const Structure& s, std::int64_t entry) {
  const std::int64_t value = s.value_indices != nullptr ? s.value_indices[entry] : entry;
  return value >= 0 && value < s.nnz ? static_cast<std::int32_t>(value) : -1;
}

/// The entries of a list, whatever unchecked offsets say.
struct Entries {
  std::int64_t begin, end;
};
__device__ Entries entries_of(const Structure& s, std::int64_t list) {
  return {max(s.row_offsets[list], std::int64_t{0}), min(s.row_offsets[list + 1], s.nnz)};
}

/// A warp for each list: the bits of the rows, as SimilarArrays has them.
__global__ void __launch_bounds__(kListThreads)
    bits_kernel(const Structure s, std::uint32_t* bits, std::int64_t num_words) {
  const std::int64_t list =
      (static_cast<std::int64_t>(blockIdx.x) * kListThreads + threadIdx.x) / 32;
  if (list >= s.block_rows) return;
  const Entries entries = entries_of(s, list);
  for (std::int64_t entry = entries.begin + threadIdx.x % 32; entry < entries.end; entry += 32) {
    const std::int64_t col = s.col_indices[entry];
    if (col < 0 || col >= s.block_cols || value_of(s, entry) < 0) continue;
    const std::int64_t k = s.by_cols ? list : col, row = s.by_cols ? col : list;
    atomicOr(&bits[(row / kWindow * num_words + k / 32) * kWindow + row % kWindow], 1u << (k % 32));
  }
}

/// Notes the blocks of a group in [k_begin, k_end): table[(k - k_begin) * rows_in_group + row]. Of
/// a block that is listed twice (in unchecked lists) always the same one stays.
__device__ void fill_table(const Structure& s, std::int64_t group, std::int64_t k_begin,
                           std::int64_t k_end, std::int32_t* table) {
  const int size = s.rows_in_group;
  const std::int64_t first = group * size;
  // Lists are read by whole CTAs where a group has few, and by warps where it looks through all.
  const int step = s.by_cols ? 32 : kListThreads;
  const int lane = threadIdx.x % step;
  const std::int64_t list_begin = s.by_cols ? k_begin + threadIdx.x / 32 : first;
  const std::int64_t list_end = s.by_cols ? k_end : min(first + size, s.block_rows);
  const int list_step = s.by_cols ? kListThreads / 32 : 1;
  for (std::int64_t at = list_begin; at < list_end; at += list_step) {
    const std::int64_t list = s.by_cols || s.order == nullptr ? at : s.order[at];
    const Entries entries = entries_of(s, list);
    for (std::int64_t entry = entries.begin + lane; entry < entries.end; entry += step) {
      const std::int64_t col = s.col_indices[entry];
      if (col < 0 || col >= s.block_cols) continue;
      const std::int64_t k = s.by_cols ? list : col;
      const std::int64_t place = !s.by_cols ? at : s.place_of == nullptr ? col : s.place_of[col];
      const std::int64_t row = place - first;
      if (k < k_begin || k >= k_end || row < 0 || row >= size) continue;
      const std::int32_t value = value_of(s, entry);
      if (value >= 0) atomicMax(&table[(k - k_begin) * size + row], value);
    }
  }
}

/// One CTA for each group.
template <bool kFill>
__global__ void __launch_bounds__(kListThreads)
    list_kernel(const Structure s, const Arrays arrays) {
  __shared__ std::int32_t table[kTable];
  __shared__ int in_warp[kListThreads / 32];
  const int size = s.rows_in_group, stretch = kTable / size;
  const std::int64_t num_k = s.by_cols ? s.block_rows : s.block_cols;
  const std::int64_t words = (num_k + 31) / 32;
  std::int64_t length = 0;
  for (std::int64_t k_begin = 0; k_begin < num_k; k_begin += stretch) {
    const std::int64_t k_end = min(k_begin + stretch, num_k);
    for (int i = threadIdx.x; i < kTable; i += kListThreads) table[i] = -1;
    __syncthreads();
    fill_table(s, blockIdx.x, k_begin, k_end, table);
    __syncthreads();
    for (int base = 0; base < k_end - k_begin; base += kListThreads) {
      const int at = base + threadIdx.x;
      bool present = false;
      for (int row = 0; at < k_end - k_begin && row < size; ++row) {
        present |= table[at * size + row] >= 0;
      }
      const std::uint32_t ballot = __ballot_sync(0xffffffffu, present);
      if (threadIdx.x % 32 == 0) {
        in_warp[threadIdx.x / 32] = __popc(ballot);
        const std::int64_t word = (k_begin + at) / 32;
        if (kFill && word < words) {
          arrays.bits[arrays.ranks[blockIdx.x] * words + word] = ballot;
        }
      }
      __syncthreads();
      int before = 0, total = 0;
      for (int warp = 0; warp < kListThreads / 32; ++warp) {
        if (warp < threadIdx.x / 32) before += in_warp[warp];
        total += in_warp[warp];
      }
      if constexpr (kFill) {
        const std::int64_t place = arrays.begins[blockIdx.x] + length + before +
                                   __popc(ballot & ((1u << threadIdx.x % 32) - 1));
        if (present && place < s.nnz) {  // beyond: overlapping lists, that nobody checked
          arrays.cols[place] = static_cast<std::int32_t>(k_begin + at);
          for (int row = 0; row < size; ++row) {
            arrays.values[place * size + row] = table[at * size + row];
          }
        }
      }
      length += total;
      __syncthreads();
    }
  }
  if (!kFill && threadIdx.x == 0) arrays.lengths[blockIdx.x] = static_cast<std::int32_t>(length);
}

/// The lists of rows by themselves, out of those of groups of neighbours: a warp for each row.
template <bool kFill>
__global__ void __launch_bounds__(kListThreads)
    alone_kernel(const Arrays groups, const Arrays alone, std::int32_t rows, int rows_in_group,
                 std::int64_t nnz) {
  const auto row = static_cast<std::int32_t>((blockIdx.x * kListThreads + threadIdx.x) / 32);
  if (row >= rows) return;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::int32_t group = row / rows_in_group, in_group = row % rows_in_group;
  const std::int64_t end = groups.begins[group + 1];
  std::int32_t length = 0;
  for (std::int64_t entry = groups.begins[group] + lane; entry - lane < end; entry += 32) {
    const std::int32_t value = entry < end ? groups.values[entry * rows_in_group + in_group] : -1;
    const std::uint32_t ballot = __ballot_sync(0xffffffffu, value >= 0);
    if constexpr (kFill) {
      const std::int64_t place = alone.begins[row] + length + __popc(ballot & ((1u << lane) - 1));
      if (value >= 0 && place < nnz) {
        alone.cols[place] = groups.cols[entry];
        alone.values[place] = value;
      }
    }
    length += __popc(ballot);
  }
  if (!kFill && lane == 0) alone.lengths[row] = length;
}

/// A thread for each group: where its list begins, and its rank by length.
__global__ void place_kernel(const Arrays arrays, std::int32_t count, std::int64_t nnz) {
  const std::int32_t group = blockIdx.x * blockDim.x + threadIdx.x;
  if (group >= count) return;
  const std::int32_t mine = arrays.lengths[group];
  std::int64_t begin = 0;
  std::int32_t rank = 0;
  for (std::int32_t other = 0; other < count; ++other) {
    const std::int32_t length = arrays.lengths[other];
    if (other < group) begin += length;
    if (length > mine || (length == mine && other < group)) ++rank;
  }
  begin = min(begin, nnz);
  arrays.begins[group] = begin;
  arrays.ranks[group] = rank;
  const auto length = static_cast<std::int32_t>(min(std::int64_t{mine}, nnz - begin));
  arrays.groups[rank] = {begin, length, group};
  if (group == count - 1) arrays.begins[count] = begin + length;
}

}  // namespace

std::size_t plan_bytes(const BsrMatrixView& matrix, OperandSide side) {
  return arrays_of(matrix, side, nullptr).bytes;
}

Lists lists_of(const BsrMatrixView& matrix, OperandSide side, Grouping grouping,
               const void* memory) {
  const PlanArrays all = arrays_of(matrix, side, const_cast<void*>(memory));
  const Arrays& arrays = grouping == Grouping::similar ? all.similar : all.neighbours;
  const int workers = arrays.schedule.begins != nullptr ? num_workers(matrix) : 0;
  return {arrays.groups,
          arrays.begins,
          arrays.bits,
          arrays.cols,
          arrays.values,
          arrays.similar.order,
          static_cast<std::int32_t>(num_groups(matrix, side)),
          static_cast<std::int32_t>(bit_words(matrix, side)),
          {arrays.schedule.begins, arrays.schedule.tiles, workers,
           scheduled_panels(num_groups(matrix, side), workers)}};
}

FewDeal deal_of(const BsrMatrixView& matrix, OperandSide side, const void* memory) {
  const FewDealArrays deal = arrays_of(matrix, side, const_cast<void*>(memory)).deal;
  return {deal.shares, deal.squares, deal.parts};
}

namespace {

void make_lists(const BsrMatrixView& matrix, OperandSide side, const Structure& structure,
                const Arrays& arrays, cudaStream_t stream) {
  const auto groups = static_cast<unsigned>(num_groups(matrix, side));
  list_kernel<false><<<groups, kListThreads, 0, stream>>>(structure, arrays);
  place_kernel<<<(groups + 127) / 128, 128, 0, stream>>>(arrays, static_cast<std::int32_t>(groups),
                                                         matrix.nnz());
  list_kernel<true><<<groups, kListThreads, 0, stream>>>(structure, arrays);
}

void make_schedule(const BsrMatrixView& matrix, OperandSide side, const Arrays& arrays,
                   cudaStream_t stream) {
  const std::int64_t groups = num_groups(matrix, side);
  const int workers = num_workers(matrix);
  const std::int32_t panels = scheduled_panels(groups, workers);
  if (panels == 0) return;
  schedule_kernel<<<1, kScheduleThreads, 0, stream>>>(
      arrays.groups, static_cast<std::int32_t>(groups), panels, log2_abreast(matrix), workers,
      static_cast<float>(Stretches::fixed(log2_of(block_of(matrix, side).cols))), arrays.schedule);
}

void make_alone(const BsrMatrixView& matrix, OperandSide side, const PlanArrays& arrays,
                cudaStream_t stream) {
  const auto rows = static_cast<std::int32_t>(num_rows(matrix, side));
  const auto ctas = static_cast<unsigned>(ceil_div(rows, kListThreads / 32));
  const int size = rows_in_group(matrix, side);
  alone_kernel<false><<<ctas, kListThreads, 0, stream>>>(arrays.neighbours, arrays.alone, rows,
                                                         size, matrix.nnz());
  place_kernel<<<static_cast<unsigned>(ceil_div(rows, 128)), 128, 0, stream>>>(arrays.alone, rows,
                                                                               matrix.nnz());
  alone_kernel<true><<<ctas, kListThreads, 0, stream>>>(arrays.neighbours, arrays.alone, rows, size,
                                                        matrix.nnz());
}

void make_deal(const BsrMatrixView& matrix, OperandSide side, const PlanArrays& arrays,
               cudaStream_t stream) {
  const FewShape few = few_shape(matrix, side);
  const FewLists lists{
      arrays.alone.groups,     arrays.alone.cols,
      arrays.alone.values,     static_cast<std::int32_t>(few.tiles()),
      log2_of(few.side),       log2_of(few.block.rows),
      log2_of(few.block.cols), static_cast<std::int32_t>(num_k(matrix, side) * few.block.cols)};
  const int ctas = num_few_ctas(matrix);
  deal_parts_kernel<<<ctas, 32, 0, stream>>>(lists, arrays.deal);
  deal_squares_kernel<<<ctas, kDealThreads, 0, stream>>>(lists, arrays.deal);
}

/// For similar rows the lists of neighbours once more, which lie in the same way, and their order.
void keep_order(const BsrMatrixView& matrix, OperandSide side, const PlanArrays& arrays,
                cudaStream_t stream) {
  cuda_check(cudaMemcpyAsync(arrays.similar.groups, arrays.neighbours.groups,
                             arrays.neighbours.bytes_of_lists, cudaMemcpyDeviceToDevice, stream),
             "make_bsr_plan");
  const std::int64_t windows = num_windows(matrix, side);
  in_order_kernel<<<static_cast<unsigned>(windows), kWindow, 0, stream>>>(
      arrays.similar.similar.order, num_rows(matrix, side), windows * kWindow);
}

void order_rows(const BsrMatrixView& matrix, OperandSide side, const Structure& structure,
                const SimilarArrays& arrays, cudaStream_t stream) {
  const std::int64_t rows = num_rows(matrix, side), windows = num_windows(matrix, side);
  const std::int64_t words = bit_words(matrix, side);
  cuda_check(
      cudaMemsetAsync(arrays.bits, 0, words_of_bits(matrix, side) * sizeof(std::uint32_t), stream),
      "make_bsr_plan");
  const std::int64_t lists_of_cta = kListThreads / 32;
  bits_kernel<<<static_cast<unsigned>(ceil_div(matrix.num_block_rows(), lists_of_cta)),
                kListThreads, 0, stream>>>(structure, arrays.bits, words);
  similar_kernel<<<static_cast<unsigned>(windows), kWindow, 0, stream>>>(
      arrays, rows, words, rows_in_group(matrix, side));
}

}  // namespace

void make_plan(const BsrMatrixView& matrix, OperandSide side, PlanEffort effort, void* memory,
               cudaStream_t stream) {
  if (num_groups(matrix, side) == 0) return;
  const PlanArrays arrays = arrays_of(matrix, side, memory);
  Structure structure{matrix.row_offsets,
                      matrix.col_indices,
                      matrix.value_indices,
                      matrix.nnz(),
                      matrix.num_block_rows(),
                      matrix.num_block_cols(),
                      side == OperandSide::right,
                      rows_in_group(matrix, side),
                      nullptr,
                      nullptr};
  make_lists(matrix, side, structure, arrays.neighbours, stream);
  if (arrays.deal.shares != nullptr) {
    if (structure.rows_in_group > 1) make_alone(matrix, side, arrays, stream);
    make_deal(matrix, side, arrays, stream);
  }
  const bool similar = finds_similar(matrix, side);
  if (similar && effort == PlanEffort::low) {
    keep_order(matrix, side, arrays, stream);
  } else if (similar) {
    const SimilarArrays& rows = arrays.similar.similar;
    order_rows(matrix, side, structure, rows, stream);
    structure.order = rows.order;
    structure.place_of = rows.place_of;
    make_lists(matrix, side, structure, arrays.similar, stream);
  }
  make_schedule(matrix, side, arrays.similar, stream);
  cuda_check(cudaGetLastError(), "make_bsr_plan");
}

}  // namespace sparsek::bsr::sm90
