#pragma once

#include <algorithm>
#include <cstdint>

#include "bsr_gemm/problem.h"
#include "bsr_gemm/sm90/launch.h"
#include "core/integers.h"
#include "primitives/tensor_map.h"

namespace sparsek::bsr::sm90 {

// Each product's launch: what its kernel reads is gathered from the arguments. Throws Error.
void run_one_sparse(const Problem& problem, const BsrGemmArgs& args);
void run_pairs(const Problem& problem, const BsrGemmArgs& args);
void run_sampled(const Problem& problem, const BsrGemmArgs& args);
void run_dense(const Problem& problem, const BsrGemmArgs& args);

/// A product with one sparse operand and few columns, which run_one_sparse leaves to run_few.
bool takes_few(const Problem& problem);
void run_few(const Problem& problem, const BsrGemmArgs& args);

/// Tiles of 128 rows of the sparse operand, or of either, and `tile_cols` columns.
std::int64_t num_tiles(const Problem& problem, int tile_cols);

/// What sums of parts of long rows take beside a product with one sparse operand; 0 where no row
/// can be so long that one of its tiles takes longer than a worker's share of all.
std::size_t bytes_of_sums(const Problem& problem);

/// What it takes for CTAs to share the tiles of a product of two dense operands; 0 where these are
/// too many for that, or the walk over k too short.
std::size_t bytes_of_shared_tiles(const Problem& problem);

/// What it takes for CTAs to take the tiles of two sparse operands as they get ready; 0 where no
/// CTA has several.
std::size_t bytes_of_next_tile(const Problem& problem);

inline Major major_of(const Access& access, int k_axis) {
  return access.axis == k_axis ? Major::k : Major::free;
}

/// A dense result. `rows_first`: the kernel's rows are the first axis, not the second.
inline Matrix matrix_of(const TensorView& tensor, bool rows_first) {
  return {tensor.data, tensor.stride[rows_first ? 0 : 1], tensor.stride[rows_first ? 1 : 0]};
}

/// `rows_inner`: the kernel's rows are contiguous in the result.
inline void set_factors(const Problem& p, const BsrGemmArgs& args, bool rows_inner,
                        Result* result) {
  result->alpha = args.alpha;
  result->beta = args.beta;
  result->wide_out = p.out_dtype == DType::float32;
  result->rows_inner = rows_inner;
  result->aligned = p.out_access.alignment == 16;
  result->c_aligned = p.c_access.axis == p.out_access.axis && p.c_access.alignment == 16;
}

/// A dense result, and c.
inline void set_out(const Problem& p, const BsrGemmArgs& args, bool rows_first, Result* result) {
  result->out = matrix_of(args.out.dense, rows_first);
  if (args.beta != 0) result->c = matrix_of(args.c.dense, rows_first);
  set_factors(p, args, (p.out_access.axis == 0) == rows_first, result);
}

/// Whether two rows of a block, of 32 contiguous k each, lie side by side in memory.
inline bool can_fold(const TensorView& values, int k_axis, Major major, int inner) {
  return major == Major::k && inner == 32 && values.shape[k_axis] == inner &&
         values.stride[3 - k_axis] == inner;
}

/// Boxes of blocks of (nnz, bm, bk) values, of which axis `k_axis` is that of k. Where k is
/// contiguous they have up to `most_rows` rows, else up to `most_k` of k.
inline CUtensorMap block_map(const char* name, const TensorView& values, int k_axis, Major major,
                             int inner, int most_rows = kGroupRows, int most_k = kTileK) {
  const int row_axis = 3 - k_axis;
  const auto box = [](std::int64_t extent, int most) {
    return static_cast<int>(std::min<std::int64_t>(extent, most));
  };
  const std::int64_t rows = values.shape[row_axis], k = values.shape[k_axis];
  const MapAxis blocks{values.shape[0], values.stride[0], 1};
  return major == Major::k
             ? make_tensor_map(
                   name, values.dtype, values.data,
                   {{k, 1, inner}, {rows, values.stride[row_axis], box(rows, most_rows)}, blocks})
             : make_tensor_map(
                   name, values.dtype, values.data,
                   {{rows, 1, inner}, {k, values.stride[k_axis], box(k, most_k)}, blocks});
}

/// The same by lines of two rows, where can_fold says so.
inline CUtensorMap folded_map(const char* name, const TensorView& values, int k_axis) {
  const std::int64_t lines = values.shape[3 - k_axis] / 2;
  const int box = static_cast<int>(std::min<std::int64_t>(lines, kGroupRows / 2));
  return make_tensor_map(name, values.dtype, values.data,
                         {{64, 1, 64}, {lines, 64, box}, {values.shape[0], values.stride[0], 1}});
}

}  // namespace sparsek::bsr::sm90
