// The merged block lists of groups of block rows (of block columns for a right operand), longest
// group first. Four kernels: count the entries of each group, place the groups, fill their lists,
// and say which CTA takes which tiles.

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/schedule.cuh"
#include "bsr_gemm/sm90/stretches.h"
#include "core/cuda_check.h"
#include "core/device.h"
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
};

struct Arrays {
  RowGroup* groups;
  std::int64_t* begins;  // see Lists
  std::uint32_t* bits;
  std::int32_t* lengths;
  std::int32_t* cols;
  std::int32_t* values;
  ScheduleArrays schedule;
};

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::int64_t num_groups(const BsrMatrixView& m, OperandSide side) {
  const std::int64_t rows = side == OperandSide::left ? m.num_block_rows() : m.num_block_cols();
  const int group = rows_in_group(m, side);
  return (rows + group - 1) / group;
}

/// The persistent CTAs that walk the tiles.
int num_workers(const BsrMatrixView& m) { return device_info(m.values.device).num_sms; }

std::int64_t bit_words(const BsrMatrixView& m, OperandSide side) {
  return ((side == OperandSide::left ? m.num_block_cols() : m.num_block_rows()) + 31) / 32;
}

Arrays arrays_of(const BsrMatrixView& m, OperandSide side, void* memory, std::size_t* bytes) {
  const auto groups = static_cast<std::size_t>(num_groups(m, side));
  const auto entries = static_cast<std::size_t>(m.nnz());
  std::size_t offset = 0;
  const auto take = [&](std::size_t size) {
    void* const part = static_cast<char*>(memory) + offset;
    offset += aligned(size);
    return part;
  };
  Arrays arrays{};
  arrays.groups = static_cast<RowGroup*>(take(groups * sizeof(RowGroup)));
  arrays.begins = static_cast<std::int64_t*>(take((groups + 1) * sizeof(std::int64_t)));
  arrays.bits = static_cast<std::uint32_t*>(
      take(groups * static_cast<std::size_t>(bit_words(m, side)) * sizeof(std::uint32_t)));
  arrays.lengths = static_cast<std::int32_t*>(take(groups * sizeof(std::int32_t)));
  arrays.cols = static_cast<std::int32_t*>(take(entries * sizeof(std::int32_t)));
  arrays.values =
      static_cast<std::int32_t*>(take(entries * rows_in_group(m, side) * sizeof(std::int32_t)));
  const int workers = num_workers(m);
  const std::int64_t count = num_groups(m, side);
  if (const std::int64_t scheduled = count * scheduled_panels(count, workers)) {
    arrays.schedule.begins = static_cast<std::int32_t*>(
        take((static_cast<std::size_t>(workers) + 1) * sizeof(std::int32_t)));
    arrays.schedule.tiles = static_cast<std::int32_t*>(
        take(static_cast<std::size_t>(scheduled) * sizeof(std::int32_t)));
  }
  if (bytes != nullptr) *bytes = offset;
  return arrays;
}

__device__ std::int32_t value_of(const Structure& s, std::int64_t entry) {
  const std::int64_t value = s.value_indices != nullptr ? s.value_indices[entry] : entry;
  return value >= 0 && value < s.nnz ? static_cast<std::int32_t>(value) : -1;
}

/// Notes the blocks of a group in [k_begin, k_end): table[(k - k_begin) * rows_in_group + row]. Of
/// a block that is listed twice (in unchecked lists) always the same one stays.
__device__ void fill_table(const Structure& s, std::int64_t group, std::int64_t k_begin,
                           std::int64_t k_end, std::int32_t* table) {
  const int size = s.rows_in_group;
  const std::int64_t first = group * size;
  // Lists are read by whole CTAs where a group has few, and by warps where it looks through all.
  const int step = s.by_cols ? 32 : kListThreads;
  const int place = threadIdx.x % step;
  const std::int64_t list_begin = s.by_cols ? k_begin + threadIdx.x / 32 : first;
  const std::int64_t list_end = s.by_cols ? k_end : min(first + size, s.block_rows);
  const int list_step = s.by_cols ? kListThreads / 32 : 1;
  for (std::int64_t list = list_begin; list < list_end; list += list_step) {
    const std::int64_t begin = max(s.row_offsets[list], std::int64_t{0});
    const std::int64_t end = min(s.row_offsets[list + 1], s.nnz);
    for (std::int64_t entry = begin + place; entry < end; entry += step) {
      const std::int64_t col = s.col_indices[entry];
      const std::int64_t k = s.by_cols ? list : col, row = (s.by_cols ? col : list) - first;
      if (col < 0 || col >= s.block_cols || k < k_begin || k >= k_end || row < 0 || row >= size) {
        continue;
      }
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
        if (kFill && word < words) arrays.bits[blockIdx.x * words + word] = ballot;
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
  const auto length = static_cast<std::int32_t>(min(std::int64_t{mine}, nnz - begin));
  arrays.groups[rank] = {begin, length, group};
  if (group == count - 1) arrays.begins[count] = begin + length;
}

}  // namespace

int rows_in_group(const BsrMatrixView& matrix, OperandSide side) {
  const std::int64_t rows = side == OperandSide::left ? matrix.block_rows() : matrix.block_cols();
  return rows >= kTileRows ? 1 : static_cast<int>(kTileRows / rows);
}

std::size_t plan_bytes(const BsrMatrixView& matrix, OperandSide side) {
  std::size_t bytes = 0;
  arrays_of(matrix, side, nullptr, &bytes);
  return bytes;
}

Lists lists_of(const BsrMatrixView& matrix, OperandSide side, const void* memory) {
  const Arrays arrays = arrays_of(matrix, side, const_cast<void*>(memory), nullptr);
  const int workers = num_workers(matrix);
  const std::int32_t panels = scheduled_panels(num_groups(matrix, side), workers);
  return {arrays.groups,
          arrays.begins,
          arrays.bits,
          arrays.cols,
          arrays.values,
          static_cast<std::int32_t>(num_groups(matrix, side)),
          static_cast<std::int32_t>(bit_words(matrix, side)),
          {arrays.schedule.begins, arrays.schedule.tiles, panels > 0 ? workers : 0, panels}};
}

void make_plan(const BsrMatrixView& matrix, OperandSide side, void* memory, cudaStream_t stream) {
  const auto groups = static_cast<unsigned>(num_groups(matrix, side));
  if (groups == 0) return;
  const Arrays arrays = arrays_of(matrix, side, memory, nullptr);
  const Structure structure{matrix.row_offsets,         matrix.col_indices,
                            matrix.value_indices,       matrix.nnz(),
                            matrix.num_block_rows(),    matrix.num_block_cols(),
                            side == OperandSide::right, rows_in_group(matrix, side)};
  list_kernel<false><<<groups, kListThreads, 0, stream>>>(structure, arrays);
  place_kernel<<<(groups + 127) / 128, 128, 0, stream>>>(arrays, static_cast<std::int32_t>(groups),
                                                         matrix.nnz());
  list_kernel<true><<<groups, kListThreads, 0, stream>>>(structure, arrays);
  const int workers = num_workers(matrix);
  if (const std::int32_t panels = scheduled_panels(groups, workers)) {
    const std::int64_t block_k =
        side == OperandSide::left ? matrix.block_cols() : matrix.block_rows();
    schedule_kernel<<<1, kScheduleThreads, 0, stream>>>(
        arrays.groups, static_cast<std::int32_t>(groups), panels, workers,
        static_cast<float>(Stretches::fixed(log2_of(block_k))), arrays.schedule);
  }
  cuda_check(cudaGetLastError(), "make_bsr_plan");
}

}  // namespace sparsek::bsr::sm90
