"""Lists whose last q tiles several CTAs share, each a part of a tile's list.

That each shape here is such a one, tests/cpp/attention/test_sm90_shares.cpp says.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import Case, random_blocks
from test_attention import run_case
from test_attention_sm90 import check, normal

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu

# A few tiles more than teams; head_dim, value_dim, q_block: heads, q_len, kv_len.
SHAPES = {
    (64, 64, 128): (135, 200, 3600),
    (64, 64, 64): (67, 380, 4800),
    (96, 96, 128): (70, 200, 1400),
    (128, 128, 128): (70, 200, 1200),
    (128, 104, 256): (70, 200, 1200),
    (128, 128, 64): (67, 380, 2500),
    (192, 128, 128): (70, 200, 1200),
    (192, 192, 128): (70, 200, 1200),
    (256, 256, 128): (70, 200, 1200),
    (256, 256, 64): (70, 120, 1200),
}


@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("lists", ["equal", "partial", "unequal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_last_round(shape, lists, band, rng):
    head_dim, value_dim, q_block = shape
    heads, q_len, kv_len = SHAPES[shape]
    # Unequal ones are taken whole, as the GPU finds out.
    density, kv_block = {"equal": (0.9, 32), "partial": (0.95, 16), "unequal": (0.5, 256)}[lists]
    case = Case(
        lists,
        q_len,
        kv_len if lists != "unequal" else 2 * kv_len,
        batch=1,
        heads=heads,
        kv_heads=int(rng.choice([1, heads])),
        head_dim=head_dim,
        value_dim=value_dim,
        mask=random_blocks(q_block, kv_block, density, partial=lists == "partial"),
        causal=band == "causal",
        window=(kv_len - 100, 30) if band == "window" else None,
    )
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("q_len", [200, 100])
def test_graph_replay_as_lists_become_unequal_and_equal(q_len, rng):
    """140 tiles of 132 CTAs, the last 8 of which are shared where lists are about equal; 70, all of them."""
    heads, blocks, block = 70, 10, 128
    q_blocks, kv_len = -(-q_len // 128), blocks * block
    q = normal(rng, 1, q_len, heads, 128)
    k, v = (normal(rng, 1, kv_len, heads, 128) for _ in range(2))
    counts = torch.full((1, heads, q_blocks), blocks, dtype=torch.int32, device="cuda")
    indices = torch.from_numpy(rng.random((*counts.shape, blocks)).argsort(-1).astype(np.int32)).cuda()
    mask = BlockMask.from_indices(indices, counts, q_len=q_len, kv_len=kv_len, q_block=128, kv_block=block)
    out, lse = attention(q, k, v, mask=mask, backend="sm90", return_lse=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = attention(q, k, v, mask=mask, backend="sm90", return_lse=True)
    for low, high in ((8, 10), (0, 10), (1, 2), (0, 0), (10, 10)):
        counts.copy_(torch.from_numpy(rng.integers(low, high + 1, counts.shape, dtype=np.int32)))
        indices.copy_(torch.from_numpy(rng.random(indices.shape).argsort(-1).astype(np.int32)))
        out.fill_(float("nan"))
        lse.fill_(float("nan"))
        graph.replay()
        listed = torch.zeros(1, heads, q_blocks, blocks, dtype=torch.bool, device="cuda")
        kept = torch.arange(blocks, device="cuda") < counts[..., None]
        listed.scatter_(-1, indices.long(), kept)
        allowed = listed.repeat_interleave(block, 2)[:, :, :q_len].repeat_interleave(block, 3)
        check(q, k, v, allowed, out, lse)
