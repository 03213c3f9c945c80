#include "attention/block_lists.h"
#include "attention/sm90_unfused/kernels.h"
#include "core/cuda_check.h"

namespace sparsek::attn::sm90_unfused {
namespace {

constexpr int kThreads = 128;

// One CTA for each list of the chunk.
__global__ void scatter_lists(BlockMaskView mask, std::int64_t mask_batch_begin, BlockTable table) {
  const std::int64_t list_in_chunk = blockIdx.x;
  const std::int64_t q_block = list_in_chunk % table.num_q_blocks;
  const std::int64_t head = list_in_chunk / table.num_q_blocks % mask.num_heads;
  const std::int64_t batch = list_in_chunk / table.num_q_blocks / mask.num_heads;
  const ListRange range =
      list_range(mask, list_number(mask, mask_batch_begin + batch, head, mask.num_heads,
                                   table.q_block_begin + q_block));
  std::int32_t* row = table.entries + list_in_chunk * table.num_kv_blocks;
  for (std::int64_t entry = range.begin + threadIdx.x; entry < range.end; entry += blockDim.x) {
    const ListedBlock block = listed_block(mask, entry);
    if (block.kv_block < 0) continue;
    // The maximum, so that a block listed twice (in unchecked lists) gives the same answer run
    // after run.
    atomicMax(row + block.kv_block, static_cast<std::int32_t>(block.bitmap + 2));
  }
}

}  // namespace

void fill_block_table(const BlockMaskView& mask, const Chunk& chunk, const BlockTable& table,
                      cudaStream_t stream) {
  const std::int64_t mask_batches = mask.num_batches == 1 ? 1 : chunk.num_batches;
  const std::int64_t lists = mask_batches * mask.num_heads * table.num_q_blocks;
  cuda_check(
      cudaMemsetAsync(table.entries, 0, lists * table.num_kv_blocks * sizeof(std::int32_t), stream),
      "attention: block table");
  scatter_lists<<<static_cast<unsigned>(lists), kThreads, 0, stream>>>(
      mask, mask.num_batches == 1 ? 0 : chunk.batch_begin, table);
  cuda_check(cudaGetLastError(), "attention: block table");
}

}  // namespace sparsek::attn::sm90_unfused
