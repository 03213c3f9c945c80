"""Inputs and comparisons of the tests of sparsek.torch."""

from __future__ import annotations

import pytest
import reference
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sparsek import BlockMask, BSRMatrix

DEVICES = [
    pytest.param("cpu", torch.float32, id="cpu"),
    pytest.param("cuda", torch.float16, id="cuda", marks=pytest.mark.gpu),
]


def normal(rng, *shape, device="cpu", dtype=torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype="float32")).to(device, dtype)


def qkv(rng, device="cpu", dtype=torch.float32, *, batch=2, q_len=96, kv_len=128, heads=4, kv_heads=2, head_dim=32):
    shapes = (batch, q_len, heads, head_dim), *[(batch, kv_len, kv_heads, head_dim)] * 2
    return [normal(rng, *shape, device=device, dtype=dtype) for shape in shapes]


def some_mask(rng, like, *, q_len=96, kv_len=128, heads=4) -> BlockMask:
    """Absent, full and partial blocks, a list for each head."""
    kinds = rng.integers(0, 3, (heads, q_len // 32, kv_len // 32)).repeat(32, 1).repeat(32, 2)
    dense = (kinds == 2) | ((kinds == 1) & (rng.random(kinds.shape) < 0.5))
    return BlockMask.from_dense(dense, q_block=32, kv_block=32).to(like)


def check_attention(out, q, k, v, *, lse=None, mask=None, scale=None, **rules) -> None:
    """out (and lse) of (B, S, H, D) inputs against the float64 formula."""
    dense = None if mask is None else mask.to_dense()
    allowed = reference.allowed_pairs(q.shape[1], k.shape[1], mask=dense, device=q.device, **rules)
    q, k, v = (x.detach() for x in (q, k, v))
    want = reference.attention(q, k, v, allowed, scale)
    lowprec = reference.attention(q, k, v, allowed, scale, out.dtype)
    reference.assert_close(out.detach(), want.out, lowprec.out)
    if lse is not None:
        reference.assert_close(lse.detach(), want.lse, lowprec.lse, what="lse")


def sparse(rng, rows, cols, block=(16, 16), device="cpu", dtype=torch.float32) -> BSRMatrix:
    kept = torch.from_numpy(rng.random((rows // block[0], cols // block[1])) < 0.5)
    kept = kept.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return BSRMatrix.from_dense((normal(rng, rows, cols) * kept).to(device, dtype), block)


class Largest(TorchDispatchMode):
    """The elements of the largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            # What expand makes owns no memory of that size.
            if isinstance(tensor, torch.Tensor) and 0 not in tensor.stride():
                self.elements = max(self.elements, tensor.numel())
        return result
