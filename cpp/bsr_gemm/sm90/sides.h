#pragma once

#include <cstdint>
#include <initializer_list>

#include "bsr_gemm/problem.h"
#include "bsr_gemm/sm90/launch.h"
#include "bsr_gemm/sm90/products.h"
#include "bsr_gemm/sm90/tile_choice.h"
#include "primitives/tensor_map.h"

namespace sparsek::bsr::sm90 {

/// The product with the sparse operand on the left: out^T = b^T a^T where b is the sparse one.
struct Sides {
  OperandSide side;
  BlockShape block;         // (rows, k)
  std::int64_t rows, cols;  // of the result
  double density;
  Access sparse, dense;
  int sparse_k_axis, dense_k_axis;
  const char *sparse_name, *dense_name;
};

inline Sides sides_of(const Problem& p) {
  if (p.product == Product::sparse_dense) {
    return {OperandSide::left, p.a_block, p.m, p.n, p.a_density, p.a_access,
            p.b_access,        2,         0,   "a", "b"};
  }
  return {OperandSide::right,
          {p.b_block.cols, p.b_block.rows},
          p.n,
          p.m,
          p.b_density,
          p.b_access,
          p.a_access,
          1,
          1,
          "b",
          "a"};
}

inline KernelKey key_of(const Problem& p, const Sides& s) {
  KernelKey key;
  key.dtype = p.dtype;
  key.sparse = major_of(s.sparse, s.sparse_k_axis);
  key.dense = major_of(s.dense, s.dense_k_axis);
  key.inner = inner_of(s.block);
  return key;
}

/// For threads that copy blocks.
template <class P>
void set_copied(const Sides& s, const TensorView& values, Major sparse, P* params) {
  constexpr int kUnit = 8;  // elements in 16 bytes, of which all strides are multiples
  const int k_axis = s.sparse_k_axis, line_axis = sparse == Major::k ? 3 - k_axis : k_axis;
  const auto in_units = [&](int axis) {
    return static_cast<std::uint32_t>(values.stride[axis] / kUnit);  // why_not_copied
  };
  params->sparse_values = values.data;
  params->sparse_block_stride = values.shape[0] > 1 ? in_units(0) : 0;
  params->sparse_line_stride = in_units(line_axis);
}

/// Boxes of a dense operand come in chunks of 64 columns, all of a tile's at a time.
inline bool dense_in_chunks(const Sides& s, const KernelKey& key) {
  return key.dense == Major::free && s.cols % 64 == 0;
}

/// The boxes of the dense operand, of `cols` columns where one box has all of a tile's.
inline CUtensorMap dense_map(const Sides& s, const TensorView& dense, const KernelKey& key,
                             std::int64_t cols) {
  const int k_axis = s.dense_k_axis, col_axis = 1 - k_axis, box = static_cast<int>(cols);
  const std::int64_t k = dense.shape[k_axis], stride = dense.stride[k_axis];
  const auto map = [&](std::initializer_list<MapAxis> axes) {
    return make_tensor_map(s.dense_name, key.dtype, dense.data, axes);
  };
  return key.dense == Major::k ? map({{k, 1, key.inner}, {s.cols, dense.stride[col_axis], box}})
         : dense_in_chunks(s, key)
             ? map({{64, 1, 64}, {k, stride, key.inner}, {s.cols / 64, 64, box / 64}})
             : map({{s.cols, 1, 64}, {k, stride, key.inner}, {1, 64, 1}});
}

}  // namespace sparsek::bsr::sm90
