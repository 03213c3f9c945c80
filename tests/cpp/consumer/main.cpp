// Attention over a causal block mask and a block-sparse product, from an installed sparsek. Fails
// when a result is wrong.
#include <sparsek/sparsek.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kLength = 6, kHeadDim = 4, kBlock = 2;

/// With q = 0 every allowed key weighs the same: row i of the result is the mean of the values it
/// sees.
bool attention_is_right() {
  std::vector<float> q(kLength * kHeadDim, 0.0f), k(kLength * kHeadDim, 1.0f), v,
      out(kLength * kHeadDim, NAN);
  for (std::int64_t i = 0; i < kLength * kHeadDim; ++i)
    v.push_back(static_cast<float>(i / kHeadDim));
  const auto view = [](std::vector<float>& x) {
    return sparsek::contiguous_view(x.data(), sparsek::DType::float32, {},
                                    {1, kLength, 1, kHeadDim});
  };

  // Block row i sees block i alone, and causal applies on top.
  const std::vector<std::int32_t> indices = {0, 1, 2};
  const std::vector<std::int64_t> offsets = {0, 1, 2, 3};
  sparsek::BlockMaskView mask;
  mask.q_len = mask.kv_len = kLength;
  mask.q_block = mask.kv_block = kBlock;
  mask.indices = indices.data();
  mask.num_indices = 3;
  mask.offsets = offsets.data();
  sparsek::check_block_mask(mask);

  sparsek::AttentionArgs args;
  args.q = view(q);
  args.k = view(k);
  args.v = view(v);
  args.out = view(out);
  args.mask = &mask;
  args.causal = true;
  sparsek::attention(args);
  bool right = true;
  for (std::int64_t row = 0; row < kLength; ++row) {
    const float first = static_cast<float>(row / kBlock * kBlock);
    const float expected = (first + static_cast<float>(row)) / 2;
    for (std::int64_t d = 0; d < kHeadDim; ++d) {
      right = right && std::fabs(out[row * kHeadDim + d] - expected) < 1e-5f;
    }
  }
  std::printf("attention (%s): %s\n", sparsek::attention_backend(args).c_str(),
              right ? "right" : "WRONG");
  return right;
}

/// A block diagonal of twos times ones.
bool bsr_gemm_is_right() {
  std::vector<float> values(3 * kBlock * kBlock, 2.0f), b(kLength * 5, 1.0f), out(kLength * 5, NAN);
  const std::vector<std::int64_t> offsets = {0, 1, 2, 3};
  const std::vector<std::int32_t> columns = {0, 1, 2};
  sparsek::BsrMatrixView a;
  a.rows = a.cols = kLength;
  a.values =
      sparsek::contiguous_view(values.data(), sparsek::DType::float32, {}, {3, kBlock, kBlock});
  a.row_offsets = offsets.data();
  a.col_indices = columns.data();
  sparsek::check_bsr_matrix(a);

  sparsek::BsrGemmArgs args;
  args.a = a;
  args.b = sparsek::contiguous_view(b.data(), sparsek::DType::float32, {}, {kLength, 5});
  args.out = sparsek::contiguous_view(out.data(), sparsek::DType::float32, {}, {kLength, 5});
  sparsek::bsr_gemm(args);
  bool right = true;
  for (const float x : out) right = right && x == 2.0f * kBlock;
  std::printf("bsr_gemm (%s): %s\n", sparsek::bsr_gemm_backend(args).c_str(),
              right ? "right" : "WRONG");
  return right;
}

/// A mistake is an exception that says what is wrong.
bool errors_are_clear() {
  try {
    sparsek::attention({});
  } catch (const sparsek::Error& error) {
    std::printf("attention without arguments: %s\n", error.what());
    return error.kind() == sparsek::ErrorKind::invalid_value;
  }
  return false;
}

}  // namespace

int main() {
  for (const sparsek::BackendStatus& backend : sparsek::attention_backends()) {
    std::printf("attention backend %s: %s\n", backend.name.c_str(),
                backend.available ? "available" : backend.reason.c_str());
  }
  const bool right = attention_is_right() & bsr_gemm_is_right() & errors_are_clear();
  return right ? 0 : 1;
}
