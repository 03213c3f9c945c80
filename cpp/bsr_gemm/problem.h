#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "sparsek/bsr_gemm.h"

namespace sparsek::bsr {

enum class Product : std::uint8_t {
  sparse_dense,   // BSR x dense -> dense
  dense_sparse,   // dense x BSR -> dense
  sparse_sparse,  // BSR x BSR -> dense
  sampled,        // dense x dense -> BSR
};

struct BlockShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// What the user asked for, without addresses: enough to choose a backend and to print.
struct Problem {
  Product product = Product::sparse_dense;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  BlockShape a_block;    // zeros where a is dense
  BlockShape b_block;    // zeros where b is dense
  BlockShape out_block;  // zeros where out is dense
  DType dtype = DType::float16;
  DType out_dtype = DType::float16;
  DeviceInfo device;
};

/// Checks every argument; throws Error naming the first that is wrong.
Problem make_problem(const BsrGemmArgs& args);

std::string to_string(const Problem& problem);

}  // namespace sparsek::bsr
