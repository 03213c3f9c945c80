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
  dense,          // dense x dense -> dense
};

struct BlockShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// How a matrix, or each block of one, lies in memory.
struct Access {
  int axis = -1;       // the contiguous one; -1: none
  int alignment = 16;  // bytes that divide the address and the other strides: a power of two up to
                       // 16, or 0 when one is negative
  std::int64_t bytes = 0;  // from the first one to behind the last
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
  Access a_access;
  Access b_access;
  Access out_access;
  Access c_access;  // axis -1 where beta is 0
  bool adds_c = false;
  double a_density = 1;  // stored blocks over those of a dense matrix
  double b_density = 1;
  std::int64_t out_blocks = 0;  // stored
  bool a_planned = false;
  bool b_planned = false;
  bool out_planned = false;
  bool forced = false;  // a backend was named: what is fastest is not asked
  bool workspace_offered = false;
  DeviceInfo device;
};

/// Stored blocks over those of a dense matrix, of one that has elements.
double density_of(const BsrMatrixView& matrix);

/// Throws Error for a matrix whose shapes do not go together, naming it.
void check_sparse(const char* name, const BsrMatrixView& matrix);

/// Checks every argument; throws Error naming the first that is wrong.
Problem make_problem(const BsrGemmArgs& args);

std::string to_string(const Problem& problem);

}  // namespace sparsek::bsr
