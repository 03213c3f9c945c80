"""A FlexAttention mask_mod as a BlockMask: packed documents, a sliding window, and a prefix that everybody sees.

Prints the mask, checks the attention against a dense one, and hands the mask to FlexAttention and back.
python examples/flex_mask.py; exits with 1 where a result differs.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F

import sparsek
from sparsek import BlockMask
from sparsek.torch import attention

LENGTH, WINDOW, PREFIX = 2048, 300, 64
ON_GPU = any(row.operation == "attention" and row.available and row.name != "cpu" for row in sparsek.backends())
DEVICE, DTYPE = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.float32)

document = (torch.arange(LENGTH, device=DEVICE) * 5 // LENGTH) ** 2  # the document of each token


def mask_mod(b, h, q_idx, kv_idx):
    """As for torch.nn.attention.flex_attention.create_block_mask."""
    near = (q_idx >= kv_idx) & (q_idx - kv_idx < WINDOW) & (document[q_idx] == document[kv_idx])
    return near | (kv_idx < PREFIX)


def main() -> int:
    start = time.perf_counter()
    mask = BlockMask.from_mask_mod(mask_mod, q_len=LENGTH, kv_len=LENGTH, q_block=128, kv_block=128, device=DEVICE)
    print(f"{mask}, made in {1e3 * (time.perf_counter() - start):.1f} ms")
    print(mask.to_text())

    q, k, v = (torch.randn(1, LENGTH, 4, 64, device=DEVICE, dtype=DTYPE) for _ in range(3))
    out = attention(q, k, v, mask=mask)

    tokens = torch.arange(LENGTH, device=DEVICE)
    seen = mask_mod(0, 0, tokens[:, None], tokens[None, :])
    dense = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=seen).transpose(1, 2)
    error = (out - dense).abs().max().item()

    again = BlockMask.from_flex(mask.to_flex())
    same = bool((again.to_dense() == mask.to_dense()).all())
    print(f"largest difference to dense attention: {error:.1e}; the same mask by way of FlexAttention: {same}")
    return 0 if error < 5e-3 and same else 1


if __name__ == "__main__":
    sys.exit(main())
