#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sparsek/backend.h"
#include "sparsek/block_mask.h"
#include "sparsek/tensor.h"

namespace sparsek {

/// Axes: B batch, Sq / Sk query / key length, Hq / Hkv heads (Hq a multiple of Hkv), D head_dim, Dv
/// value dim.
///
/// Any strides with a contiguous last axis. For the other order of axes, (B, H, S, D), swap shape
/// and stride of axes 1 and 2. Query i stands at position i + Sk - Sq among the keys (bottom-right
/// alignment): with `causal` it sees keys up to that position, with a window those from
/// `window_left` before to `window_right` after it. A query that may see no key gives zeros and lse
/// = -inf.
struct AttentionArgs {
  TensorView q;    // (B, Sq, Hq, D)   float16, bfloat16; float32 on the CPU
  TensorView k;    // (B, Sk, Hkv, D)
  TensorView v;    // (B, Sk, Hkv, Dv)
  TensorView out;  // (B, Sq, Hq, Dv)  written, q's dtype; its memory is not that of q, k or v
  TensorView lse;  // (B, Hq, Sq)      written if given: natural log of the sum of exp(scale * q.k),
                   // float32
  TensorView weights;  // (B, Hq, Sq, Sk)  written if given: the softmax probabilities, q's dtype

  const BlockMaskView* mask = nullptr;
  bool causal = false;
  std::optional<std::int64_t> window_left;   // none: unbounded
  std::optional<std::int64_t> window_right;  // none: unbounded
  std::optional<float> scale;                // none: 1 / sqrt(D)

  std::string_view backend;  // empty: the first that supports the problem
  void* stream = nullptr;    // cudaStream_t
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// Bytes of device memory that `attention` needs as workspace for these arguments (256-byte
/// aligned).
std::size_t attention_workspace_bytes(const AttentionArgs& args);

/// out = softmax(scale * q k^T, over the allowed keys) v. On a GPU the work is enqueued on
/// `stream`. Throws Error.
void attention(const AttentionArgs& args);

/// The same without a question before it: where a workspace is needed, `allocate` is called once
/// with its size in bytes and returns its address; that of `args` is not used.
void attention(const AttentionArgs& args, const std::function<void*(std::size_t)>& allocate);

/// The name of the backend that `attention` would run for these arguments. Throws Error when none
/// would.
std::string attention_backend(const AttentionArgs& args);

/// The backend table in order of preference, as seen on this machine.
std::vector<BackendStatus> attention_backends();

/// For each GPU of list_gpus(), the backend that float16 attention without weights gets there;
/// empty where none takes it.
std::vector<std::string> attention_backends_by_gpu();

}  // namespace sparsek
