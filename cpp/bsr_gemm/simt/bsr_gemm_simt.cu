// The four products on plain CUDA cores: right for every block shape, dtype and stride, and slow.
// The structure is read as it stands (no transposed copy, no plan), so a product that needs a
// column of b searches its rows for it.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bsr_gemm/simt/kernels.h"
#include "core/cuda_check.h"

namespace sparsek::bsr::simt {
namespace {

constexpr int kTile = 64;  // rows and columns of the output that a CTA computes
constexpr int kTileK = 16;
constexpr int kThreads = 256;  // 16 x 16, each 4 x 4 outputs
constexpr int kPerThread = 4;
constexpr int kStretchTiles = 2;
constexpr int kAbsent = -1;

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T from_float(float x);
template <>
__device__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// A rectangle of the output, inside one block where the output's rows or columns are cut into
/// blocks.
struct OutputTile {
  std::int64_t row = 0;  // first row and column
  std::int64_t col = 0;
  int rows = 0;
  int cols = 0;
  std::int64_t block_row = 0;  // of a, or of a sampled output
  std::int64_t block_col = 0;  // of b, or of a sampled output
  int row_in_block = 0;
  int col_in_block = 0;
  std::int64_t entry = 0;  // sampled: which block of the output
};

/// A stretch of k: where the tile's rows of a and columns of b begin.
struct Segment {
  const void* a = nullptr;
  const void* b = nullptr;
  std::int64_t length = 0;
};

struct EntryRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

__device__ EntryRange row_entries(const Operand& s, std::int64_t block_row) {
  const std::int64_t begin = s.row_offsets[block_row], end = s.row_offsets[block_row + 1];
  return {begin < 0 ? 0 : begin, end > s.nnz ? s.nnz : end};
}

/// Where the values of an entry lie, or kAbsent for an index out of range.
__device__ std::int64_t value_index(const Operand& s, std::int64_t entry) {
  const std::int64_t index = s.value_indices != nullptr ? s.value_indices[entry] : entry;
  return index >= 0 && index < s.nnz ? index : kAbsent;
}

/// The values of the block at (block_row, block_col), or kAbsent; every thread of the CTA takes
/// part.
__device__ std::int64_t find_block(const Operand& s, std::int64_t block_row, std::int64_t block_col,
                                   int* shared_found) {
  const EntryRange range = row_entries(s, block_row);
  __syncthreads();  // the previous search's answer has been read
  if (threadIdx.x == 0) *shared_found = kAbsent;
  __syncthreads();
  for (std::int64_t entry = range.begin + threadIdx.x; entry < range.end; entry += blockDim.x) {
    // The maximum, so that a block listed twice (in unchecked lists) gives the same answer run
    // after run.
    if (s.col_indices[entry] == block_col) {
      atomicMax(shared_found, static_cast<int>(entry - range.begin));
    }
  }
  __syncthreads();
  return *shared_found == kAbsent ? kAbsent : value_index(s, range.begin + *shared_found);
}

template <class In>
__device__ const In* element(const Operand& m, std::int64_t block, std::int64_t row,
                             std::int64_t col) {
  return static_cast<const In*>(m.data) + block * m.block_stride + row * m.row_stride +
         col * m.col_stride;
}

/// The row of the output's pattern that an entry belongs to: the last one that begins at or before
/// it.
__device__ std::int64_t row_of_entry(const Operand& s, std::int64_t entry) {
  std::int64_t low = 0, high = s.num_block_rows;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (s.row_offsets[middle] <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// False when there is nothing to compute.
__device__ bool find_tile(const Params& p, OutputTile* tile) {
  const auto sub_tile = [](std::int64_t index, int parts, int block, std::int64_t extent,
                           std::int64_t* block_index, int* in_block, std::int64_t* first,
                           int* count) {
    if (block == 0) {  // a dense side: tiles of its own
      *first = index * kTile;
      *count = static_cast<int>(min(static_cast<std::int64_t>(kTile), extent - *first));
      return;
    }
    *block_index = index / parts;
    *in_block = static_cast<int>(index % parts) * kTile;
    *first = *block_index * block + *in_block;
    *count = min(kTile, block - *in_block);
  };
  if (p.product != Product::sampled) {
    sub_tile(blockIdx.x % p.col_tiles, p.tiles_in_cols, p.b.block_cols, p.n, &tile->block_col,
             &tile->col_in_block, &tile->col, &tile->cols);
    sub_tile(blockIdx.x / p.col_tiles, p.tiles_in_rows, p.a.block_rows, p.m, &tile->block_row,
             &tile->row_in_block, &tile->row, &tile->rows);
    return true;
  }
  const int parts = p.tiles_in_rows * p.tiles_in_cols;
  const std::int64_t entry = blockIdx.x / parts;
  const int part = static_cast<int>(blockIdx.x % parts);
  const std::int64_t block_row = row_of_entry(p.out, entry);
  const std::int64_t block_col = p.out.col_indices[entry];
  const EntryRange range = row_entries(p.out, block_row);
  tile->entry = value_index(p.out, entry);
  if (tile->entry == kAbsent || block_col < 0 || block_col >= p.out.num_block_cols ||
      entry < range.begin || entry >= range.end) {
    return false;
  }
  sub_tile(block_row * p.tiles_in_rows + part / p.tiles_in_cols, p.tiles_in_rows, p.out.block_rows,
           p.m, &tile->block_row, &tile->row_in_block, &tile->row, &tile->rows);
  sub_tile(block_col * p.tiles_in_cols + part % p.tiles_in_cols, p.tiles_in_cols, p.out.block_cols,
           p.n, &tile->block_col, &tile->col_in_block, &tile->col, &tile->cols);
  return true;
}

/// How many steps the walk over k has: blocks of a's row, block rows of b, or one.
__device__ EntryRange steps_of(const Params& p, const OutputTile& tile) {
  if (p.a.sparse()) return row_entries(p.a, tile.block_row);
  if (p.b.sparse()) return {0, p.b.num_block_rows};
  return {0, 1};
}

/// The stretch of k at a step; of length 0 when one side has no block there.
template <class In>
__device__ Segment segment_at(const Params& p, const OutputTile& tile, std::int64_t step,
                              int* shared_found) {
  Segment segment;
  if (p.a.sparse()) {
    const std::int64_t k_block = p.a.col_indices[step];
    const std::int64_t a_block = value_index(p.a, step);
    if (k_block < 0 || k_block >= p.a.num_block_cols || a_block == kAbsent) return segment;
    segment.a = element<In>(p.a, a_block, tile.row_in_block, 0);
    if (p.b.sparse()) {
      const std::int64_t b_block = find_block(p.b, k_block, tile.block_col, shared_found);
      if (b_block == kAbsent) return segment;
      segment.b = element<In>(p.b, b_block, 0, tile.col_in_block);
    } else {
      segment.b = element<In>(p.b, 0, k_block * p.a.block_cols, tile.col);
    }
    segment.length = p.a.block_cols;
  } else if (p.b.sparse()) {
    const std::int64_t b_block = find_block(p.b, step, tile.block_col, shared_found);
    if (b_block == kAbsent) return segment;
    segment.a = element<In>(p.a, 0, tile.row, step * p.b.block_rows);
    segment.b = element<In>(p.b, b_block, 0, tile.col_in_block);
    segment.length = p.b.block_rows;
  } else {
    segment.a = element<In>(p.a, 0, tile.row, 0);
    segment.b = element<In>(p.b, 0, 0, tile.col);
    segment.length = p.k;
  }
  return segment;
}

template <class In, class Out>
__global__ void __launch_bounds__(kThreads, 2) bsr_gemm_kernel(const Params p) {
  __shared__ float sA[kTileK][kTile + 1];
  __shared__ float sB[kTileK][kTile + 1];
  __shared__ int shared_found;

  OutputTile tile;
  if (!find_tile(p, &tile)) return;
  const int thread_row = threadIdx.x / 16, thread_col = threadIdx.x % 16;
  float acc[kPerThread][kPerThread] = {};
  float total[kPerThread][kPerThread] = {};
  // Sums of a stretch of k are added up: the rounding error of one long sum grows with k.
  const auto end_stretch = [&] {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        total[i][j] += acc[i][j];
        acc[i][j] = 0.0f;
      }
    }
  };

  const EntryRange steps = steps_of(p, tile);
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
    const Segment segment = segment_at<In>(p, tile, step, &shared_found);
    const In* a = static_cast<const In*>(segment.a);
    const In* b = static_cast<const In*>(segment.b);
    for (std::int64_t k = 0; k < segment.length; k += kTileK) {
      for (int i = threadIdx.x; i < kTileK * kTile; i += kThreads) {
        const int a_k = i % kTileK, row = i / kTileK;
        const bool in_a = row < tile.rows && k + a_k < segment.length;
        sA[a_k][row] = in_a ? to_float(a[row * p.a.row_stride + (k + a_k) * p.a.col_stride]) : 0.0f;
        const int col = i % kTile, b_k = i / kTile;
        const bool in_b = col < tile.cols && k + b_k < segment.length;
        sB[b_k][col] = in_b ? to_float(b[(k + b_k) * p.b.row_stride + col * p.b.col_stride]) : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int kk = 0; kk < kTileK; ++kk) {
        float x[kPerThread], y[kPerThread];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
          x[i] = sA[kk][thread_row + 16 * i];
          y[i] = sB[kk][thread_col + 16 * i];
        }
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) acc[i][j] += x[i] * y[j];
        }
      }
      __syncthreads();
      if (k / kTileK % kStretchTiles == kStretchTiles - 1) end_stretch();
    }
    end_stretch();
  }

  const bool sampled = p.product == Product::sampled;
  for (int i = 0; i < kPerThread; ++i) {
    for (int j = 0; j < kPerThread; ++j) {
      const int row = thread_row + 16 * i, col = thread_col + 16 * j;
      if (row >= tile.rows || col >= tile.cols) continue;
      const std::int64_t block = sampled ? tile.entry : 0;
      const std::int64_t r = sampled ? tile.row_in_block + row : tile.row + row;
      const std::int64_t c = sampled ? tile.col_in_block + col : tile.col + col;
      float value = p.alpha * total[i][j];
      if (p.beta != 0.0f) value += p.beta * to_float(*element<Out>(p.c, block, r, c));
      *const_cast<Out*>(element<Out>(p.out, block, r, c)) = from_float<Out>(value);
    }
  }
}

std::int64_t tiles(std::int64_t extent) { return (extent + kTile - 1) / kTile; }

template <class In, class Out>
void launch_as(Params p, cudaStream_t stream) {
  std::int64_t ctas = 0;
  if (p.product == Product::sampled) {
    p.tiles_in_rows = static_cast<int>(tiles(p.out.block_rows));
    p.tiles_in_cols = static_cast<int>(tiles(p.out.block_cols));
    ctas = p.out.nnz * p.tiles_in_rows * p.tiles_in_cols;
  } else {
    p.tiles_in_rows = p.a.sparse() ? static_cast<int>(tiles(p.a.block_rows)) : 1;
    p.tiles_in_cols = p.b.sparse() ? static_cast<int>(tiles(p.b.block_cols)) : 1;
    const std::int64_t row_tiles = p.a.sparse() ? p.a.num_block_rows * p.tiles_in_rows : tiles(p.m);
    p.col_tiles = p.b.sparse() ? p.b.num_block_cols * p.tiles_in_cols : tiles(p.n);
    ctas = row_tiles * p.col_tiles;
  }
  require(ctas <= 0x7fffffff, ErrorKind::unsupported,
          "bsr_gemm: simt takes at most 2^31 - 1 tiles, got ", ctas);
  bsr_gemm_kernel<In, Out><<<static_cast<unsigned>(ctas), kThreads, 0, stream>>>(p);
  cuda_check(cudaGetLastError(), "bsr_gemm: simt");
}

}  // namespace

void launch(DType dtype, DType out_dtype, const Params& params, cudaStream_t stream) {
  const bool widen = out_dtype == DType::float32;
  switch (dtype) {
    case DType::float16:
      return widen ? launch_as<__half, float>(params, stream)
                   : launch_as<__half, __half>(params, stream);
    case DType::bfloat16:
      return widen ? launch_as<__nv_bfloat16, float>(params, stream)
                   : launch_as<__nv_bfloat16, __nv_bfloat16>(params, stream);
    default: return launch_as<float, float>(params, stream);
  }
}

}  // namespace sparsek::bsr::simt
