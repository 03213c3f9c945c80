#pragma once

#include <cstddef>
#include <cstdint>

#include "bsr_gemm/problem.h"

namespace sparsek::bsr::sm90_dense {

/// Tiles of the GEMM, (m, n, k).
enum class Tile : std::uint8_t {
  large,  // 128x256x64, cooperative, clusters of 2
  small,  // 64x128x64, for results that leave SMs without a large one
};

Tile choose_tile(std::int64_t m, std::int64_t n, int num_sms);

/// Of the dense copy of an operand; 0 for a dense one.
std::size_t copy_bytes(const BlockShape& block, std::int64_t rows, std::int64_t cols);

}  // namespace sparsek::bsr::sm90_dense
