"""return_weights on a GPU: what the kernels behind the fused ones write, whatever the scores, lengths and masks."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu
on_each_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
on_each_backend = pytest.mark.parametrize("backend", ["sm90", "wmma"])

LN2 = float(np.log(2))  # as scale: scores are powers of two


def on_gpu(rng, dtype, *shape):
    return torch.from_numpy(rng.standard_normal(shape, dtype="float32")).to("cuda", dtype)


def random_lists(rng, shape, q_block, kv_block, partial, empty_head=None):
    """A mask of 0.3 of the blocks, with `partial` of half of their bits, and what it lets see: (B, H, Sq, Sk)."""
    batch, heads, q_len, kv_len = shape
    blocks = rng.random((batch, heads, -(-q_len // q_block), -(-kv_len // kv_block))) < 0.3
    if empty_head is not None:
        blocks[:, empty_head] = False
    seen = blocks.repeat(q_block, axis=2)[:, :, :q_len].repeat(kv_block, axis=3)[..., :kv_len]
    if partial:
        seen = seen & (rng.random(seen.shape) < 0.5)
    seen = torch.from_numpy(seen).cuda()
    return BlockMask.from_dense(seen, q_block=q_block, kv_block=kv_block), seen


def check(q, k, v, allowed, scale=None, **options):
    out, lse, weights = attention(q, k, v, scale=scale, return_lse=True, return_weights=True, **options)
    assert weights.shape == (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    assert weights.dtype == q.dtype
    expected = reference.attention(q, k, v, allowed, scale)
    lowprec = reference.attention(q, k, v, allowed, scale, q.dtype)
    reference.assert_close(weights, expected.weights, lowprec.weights, what="weights")
    reference.assert_close(out, expected.out, lowprec.out, what="out")
    reference.assert_close(lse, expected.lse, lowprec.lse.float(), what="lse")
    seen = torch.broadcast_to(allowed, weights.shape)
    assert not weights[~seen].any()
    alone = attention(q, k, v, scale=scale, return_weights=True, **options)
    assert torch.equal(alone[0], out)
    assert torch.equal(alone[1], weights)  # by an lse that nobody else sees


@on_each_dtype
@on_each_backend
@pytest.mark.parametrize("top", [8, 200, 1000, 3000])
def test_many_large_scores(top, backend, dtype, rng):
    """64 keys with scores near the largest, which is in the hundreds and thousands: each weight is right to what its
    type holds. (Scores in float16 are off by whole powers of two there.)"""
    q_len, kv_len, head_dim = 70, 300, 64
    q, k = torch.zeros(1, q_len, 2, head_dim), torch.zeros(1, kv_len, 2, head_dim)
    q[..., 0], k[..., 0] = top / 8.0, 8.0
    fine = torch.from_numpy(rng.integers(0, 256, (1, kv_len, 2)) / 128.0).float()  # in steps that bfloat16 has
    q[..., 1], k[..., 1] = 1.0, fine
    k[:, 64:, :, 0] = 0
    q, k = q.to("cuda", dtype), k.to("cuda", dtype)
    v = on_gpu(rng, dtype, 1, kv_len, 2, head_dim)
    _, weights = attention(q, k, v, scale=LN2, return_weights=True, backend=backend)
    expected = reference.attention(q, k, v, reference.allowed_pairs(q_len, kv_len, device="cuda"), LN2).weights
    rounding = 2.0**-10 if dtype == torch.float16 else 2.0**-7
    torch.testing.assert_close(weights.double(), expected, rtol=rounding, atol=1e-7)


@on_each_dtype
@on_each_backend
def test_scores_of_millions_add_up(backend, dtype, rng):
    """Where float32 holds a score to a tenth of a power of two a row's weights still add up to 1."""
    q, k, v = (200 * on_gpu(rng, dtype, 2, 150, 3, 64) for _ in range(3))
    _, weights = attention(q, k, v, scale=1.0, return_weights=True, backend=backend)
    sums = weights.double().sum(-1)
    rounding = 2.0**-10 if dtype == torch.float16 else 2.0**-7
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=rounding)
    expected = reference.attention(q, k, v, reference.allowed_pairs(150, 150, device="cuda"), 1.0).weights
    certain = expected.amax(-1) > 0.999  # far above the next one
    assert certain.double().mean() > 0.9
    assert (weights.double() - expected).abs()[certain].max() < 0.1


@on_each_dtype
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 5000), (3, 20001), (130, 4096), (2500, 40), (64, 65), (1, 1)])
@pytest.mark.parametrize("head_dim", [64, 80, 256])
def test_keys_in_parts(head_dim, q_len, kv_len, dtype, rng):
    """Few queries share their keys among CTAs."""
    q = on_gpu(rng, dtype, 1, q_len, 4, head_dim)
    k, v = (on_gpu(rng, dtype, 1, kv_len, 2, head_dim) for _ in range(2))
    check(q, k, v, reference.allowed_pairs(q_len, kv_len, device="cuda"), backend="sm90")
    window = reference.allowed_pairs(q_len, kv_len, window=(30, 700), device="cuda")
    check(q, k, v, window, window=(30, 700), backend="sm90")


@on_each_backend
@pytest.mark.parametrize("partial", [False, True], ids=["full", "partial"])
@pytest.mark.parametrize(("q_block", "kv_block"), [(64, 16), (64, 96), (128, 64), (192, 2000), (4096, 128)])
def test_lists(q_block, kv_block, partial, backend, rng):
    """More keys than are looked up at once, blocks shorter and longer than a tile of keys, and heads without any."""
    q_len, kv_len = 300, 2600
    mask, seen = random_lists(rng, (2, 4, q_len, kv_len), q_block, kv_block, partial, empty_head=1)
    q = on_gpu(rng, torch.float16, 2, q_len, 4, 64)
    k, v = (on_gpu(rng, torch.float16, 2, kv_len, 2, 64) for _ in range(2))
    causal = reference.allowed_pairs(q_len, kv_len, causal=True, device="cuda")
    check(q, k, v, causal & seen, mask=mask, causal=True, backend=backend)


@pytest.mark.parametrize("partial", [False, True], ids=["full", "partial"])
@pytest.mark.parametrize(("q_block", "kv_block"), [(1, 1), (7, 3), (64, 24), (33, 15), (100, 17), (128, 1000)])
def test_blocks_of_any_length(q_block, kv_block, partial, rng):
    q_len, kv_len = 140, 1300
    mask, seen = random_lists(rng, (1, 2, q_len, kv_len), q_block, kv_block, partial)
    q = on_gpu(rng, torch.float16, 1, q_len, 2, 64)
    k, v = (on_gpu(rng, torch.float16, 1, kv_len, 2, 64) for _ in range(2))
    check(q, k, v, seen, mask=mask)


@on_each_dtype
@pytest.mark.parametrize("scale", [-0.3, 0.0, 1e-3])
@pytest.mark.parametrize("head_dim", [1, 33, 200])
def test_rows_and_scales_that_sm90_declines(head_dim, scale, dtype, rng):
    q = on_gpu(rng, dtype, 2, 77, 4, head_dim)
    k, v = (on_gpu(rng, dtype, 2, 91, 2, head_dim) for _ in range(2))
    allowed = reference.allowed_pairs(77, 91, causal=True, device="cuda")
    check(q, k, v, allowed, scale=scale, causal=True, backend="wmma")


@on_each_backend
def test_graph_replay_with_other_lists(backend, rng):
    """Indices and counts that change in place count at the next replay."""
    q, k, v = (on_gpu(rng, torch.float16, 1, 256, 2, 64) for _ in range(3))
    lengths = {"q_len": 256, "kv_len": 256, "q_block": 64, "kv_block": 64, "check": False}
    indices = torch.zeros(1, 2, 4, 2, dtype=torch.int32, device="cuda")
    counts = torch.ones(1, 2, 4, dtype=torch.int32, device="cuda")
    mask = BlockMask.from_indices(indices, counts, **lengths)

    def run():
        return attention(q, k, v, mask=mask, return_weights=True, backend=backend)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, weights = run()
    for _ in range(3):
        chosen = np.stack([[rng.permutation(4)[:2] for _ in range(4)] for _ in range(2)])[None]
        indices.copy_(torch.from_numpy(chosen.astype("int32")))
        counts.copy_(torch.from_numpy(rng.integers(0, 3, (1, 2, 4), dtype="int32")))
        graph.replay()
        eager_out, eager_weights = run()
        assert torch.equal(out, eager_out)
        assert torch.equal(weights, eager_weights)
        kept = (weights.view(1, 2, 4, 64, 4, 64) > 0).any(dim=5).any(dim=3)
        assert torch.equal(kept.sum(-1).int(), counts)
