"""Lists of head_dim 128, whose kernel asks the weights, once they are made, whether a score was too large for them."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu
on_each_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])

LN2 = float(np.log(2))  # as scale: scores are powers of two
Q_LEN, KV_LEN, HEADS, KV_HEADS = 300, 1000, 4, 2


def steep(rng, dtype, growth, head_dim, batch=2):
    """q, k and v on the GPU. From one 128 keys to the next a query's scores grow by up to `growth` powers of two, or
    fall by as many: neighbours do this and that."""
    signs = rng.choice([-1.0, -0.25, 0.0, 0.25, 1.0], (batch, Q_LEN, HEADS))
    steps = np.arange(KV_LEN) // 128 * float(growth)
    q = rng.standard_normal((batch, Q_LEN, HEADS, head_dim)) * 0.1
    k = rng.standard_normal((batch, KV_LEN, KV_HEADS, head_dim))
    q[..., 0], k[..., 0] = signs, steps[None, :, None]
    v = rng.standard_normal((batch, KV_LEN, KV_HEADS, head_dim))
    return (torch.from_numpy(x).to("cuda", dtype) for x in (q, k, v))


def mask_of(seen, q_block, kv_block):
    return BlockMask.from_dense(torch.from_numpy(seen).cuda(), q_block=q_block, kv_block=kv_block)


def check(out, lse, q, k, v, allowed):
    expected = reference.attention(q, k, v, allowed, scale=LN2)
    # Not twice the error in the input type: its scores of hundreds are off by a power of two.
    limit = 4e-3 if q.dtype == torch.float16 else 3e-2
    torch.testing.assert_close(out.double(), expected.out, atol=limit, rtol=0)
    torch.testing.assert_close(lse.double(), expected.lse, atol=1e-3, rtol=1e-6)


@on_each_dtype
@pytest.mark.parametrize("head_dim", [104, 128])
@pytest.mark.parametrize(("q_block", "kv_block"), [(128, 16), (128, 32), (128, 128), (256, 256)])
@pytest.mark.parametrize("growth", [6, 13, 40, 119, 127, 300], ids="by 2^{}".format)
def test_scores_that_grow(growth, q_block, kv_block, head_dim, dtype, rng):
    """13 powers of two are more than a float16 has: the weights are made smaller. 300 are more than a float32 has, and
    127 more than it may be divided by: they are made anew."""
    q, k, v = steep(rng, dtype, growth, head_dim)
    blocks = rng.random((2, HEADS, -(-Q_LEN // q_block), -(-KV_LEN // kv_block))) < 0.7
    seen = blocks.repeat(q_block, axis=2)[:, :, :Q_LEN].repeat(kv_block, axis=3)[..., :KV_LEN]
    mask = mask_of(seen, q_block, kv_block)
    out, lse = attention(q, k, v, mask=mask, scale=LN2, return_lse=True, backend="sm90")
    check(out, lse, q, k, v, torch.from_numpy(seen).cuda())
    again = attention(q, k, v, mask=mask, scale=LN2, backend="sm90")
    assert torch.equal(out, again)


@on_each_dtype
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (500, 20)}], ids=["all", "causal", "window"])
@pytest.mark.parametrize("growth", [13, 300], ids="by 2^{}".format)
def test_rows_that_see_nothing_at_first(growth, options, dtype, rng):
    """Partial blocks from which whole rows are missing, among full ones."""
    q, k, v = steep(rng, dtype, growth, 128)
    seen = np.ones((2, HEADS, Q_LEN, KV_LEN), dtype=bool)
    first = rng.integers(0, KV_LEN, (2, HEADS, Q_LEN)) * (rng.random((2, HEADS, Q_LEN)) < 0.5)
    seen &= np.arange(KV_LEN) >= first[..., None]
    seen[:, :, 7] = False
    mask = mask_of(seen, 128, 64)
    out, lse = attention(q, k, v, mask=mask, scale=LN2, return_lse=True, backend="sm90", **options)
    allowed = reference.allowed_pairs(Q_LEN, KV_LEN, mask=seen, **options)
    check(out, lse, q, k, v, allowed.cuda())


@on_each_dtype
def test_layout_and_bitmaps_beside_steep_scores(dtype, rng):
    """(B, H, S, D) in memory; half of the blocks with random bits, the others full."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in steep(rng, dtype, 300, 128))
    noisy = rng.random((2, HEADS, 3, 8)) < 0.5
    seen = ~noisy.repeat(128, axis=2)[:, :, :Q_LEN].repeat(128, axis=3)[..., :KV_LEN]
    seen |= rng.random(seen.shape) < 0.5
    mask = mask_of(seen, 128, 128)
    out, lse = attention(q, k, v, mask=mask, scale=LN2, return_lse=True, backend="sm90")
    check(out, lse, q, k, v, torch.from_numpy(seen).cuda())


@on_each_dtype
def test_a_query_that_is_no_number(dtype, rng):
    """Nobody else is told: not even the other rows of its warp, whose scores are asked for its sake."""
    q, k, v = steep(rng, dtype, 300, 128)
    q[0, 5, 1] = float("nan")
    mask = mask_of(np.ones((1, 1, Q_LEN, KV_LEN), dtype=bool), 128, 128)
    out, lse = attention(q, k, v, mask=mask, scale=LN2, return_lse=True, backend="sm90")
    assert out[0, 5, 1].isnan().all()
    allowed = torch.tensor(True).cuda()
    q[0, 5, 1] = 0
    expected = reference.attention(q[:1], k[:1], v[:1], allowed, scale=LN2)
    out[0, 5, 1], lse[0, 1, 5] = expected.out[0, 5, 1], expected.lse[0, 1, 5]
    check(out, lse, q, k, v, allowed)
