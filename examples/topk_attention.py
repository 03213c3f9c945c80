"""Attention that picks its blocks: each block of queries sees the k blocks of keys whose means suit it best.

The blocks are chosen on the device from pooled q and k, without synchronisation, so that choice and attention can be
captured in a CUDA graph or compiled together. Prints how much of the dense attention's weight the chosen blocks hold,
and the error that leaving out the others makes, for several k.
python examples/topk_attention.py; exits with 1 where seeing all blocks differs from dense attention.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import sparsek
from sparsek import BlockMask
from sparsek.torch import attention

LENGTH, HEADS, HEAD_DIM, BLOCK = 2048, 4, 64, 64
ON_GPU = any(row.operation == "attention" and row.available and row.name != "cpu" for row in sparsek.backends())
DEVICE, DTYPE = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.float32)


def choose_blocks(q: Tensor, k: Tensor, count: int) -> BlockMask:
    """For each (batch, head, q block) the `count` kv blocks of largest score between block means.

    q, k: (B, S, H, D), S a multiple of BLOCK.
    """
    q_means, k_means = (x.float().unflatten(1, (-1, BLOCK)).mean(2) for x in (q, k))  # (B, blocks, H, D)
    scores = torch.einsum("bqhd,bkhd->bhqk", q_means, k_means)
    indices = scores.topk(count).indices  # (B, H, q blocks, count)
    return BlockMask.from_indices(
        indices, q_len=q.shape[1], kv_len=k.shape[1], q_block=BLOCK, kv_block=BLOCK, check=False
    )


def clustered(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v whose tokens belong to topics, a few blocks long: the case that block sparsity is for."""
    generator = torch.Generator().manual_seed(seed)
    topics = 1.5 * torch.randn(8, 1, HEADS, HEAD_DIM, generator=generator)
    topic_of_block = torch.randint(8, (LENGTH // BLOCK,), generator=generator)
    center = topics[topic_of_block].expand(-1, BLOCK, -1, -1).reshape(1, LENGTH, HEADS, HEAD_DIM)
    q, k, v = (torch.randn(1, LENGTH, HEADS, HEAD_DIM, generator=generator) for _ in range(3))
    return tuple(x.to(DEVICE, DTYPE) for x in (q + center, k + center, v))


def main() -> int:
    q, k, v = clustered(0)
    dense, dense_lse = attention(q, k, v, return_lse=True)
    blocks = LENGTH // BLOCK
    print(f"{'blocks seen':>14} {'weight kept':>12} {'mean error':>11}")
    for count in (2, 4, 8, 16, blocks):
        out, lse = attention(q, k, v, mask=choose_blocks(q, k, count), return_lse=True)
        kept = (lse - dense_lse).exp().mean().item()  # the chosen keys' share of the softmax's denominator
        error = (out - dense).abs().mean().item()
        print(f"{count:>8} of {blocks} {kept:12.1%} {error:11.1e}")
    return 0 if error < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
