#pragma once

namespace sparsek::attn {

// Scores are powers of two while a softmax is computed, and lse is a natural logarithm.
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

}  // namespace sparsek::attn
