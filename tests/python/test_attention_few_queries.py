"""Few queries and many keys on the fused GPU kernels: packed query heads, and keys that CTAs share."""

from __future__ import annotations

import pytest
import torch
from attention_cases import Case
from test_attention import run_case
from test_attention_sm90 import check, normal, on_each

from sparsek import attention

pytestmark = pytest.mark.gpu


@on_each
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (40, 1)], ids=lambda heads: f"{heads[0]}of{heads[1]}")
@pytest.mark.parametrize("head_dims", [(64, 64), (96, 96), (128, 128), (192, 128), (100, 44), (256, 256)], ids=str)
def test_one_query(head_dims, heads, band, backend, rng):
    """Decoding: the query heads of a kv head in one tile, whose keys several CTAs share."""
    case = Case(
        "one query",
        1,
        int(rng.integers(5000, 6000)),
        batch=2,
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=head_dims[0],
        value_dim=head_dims[1],
        causal=band == "causal",
        window=(int(rng.integers(0, 4000)), 40) if band == "window" else None,
    )
    run_case(case, backend, torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(3, 9001), (200, 5000), (130, 2049), (600, 4500), (900, 8192)], ids=str)
def test_shared_keys(q_len, kv_len, band, dtype, rng):
    """Fewer q tiles than SMs and many keys: CTAs share those of a tile."""
    case = Case(
        "shared keys",
        q_len,
        kv_len,
        batch=1,
        heads=4,
        kv_heads=2,
        head_dim=int(rng.choice([64, 128, 256])),
        causal=band == "causal",
        window=(2500, 40) if band == "window" else None,
    )
    run_case(case, "sm90", dtype, rng)


def test_shared_keys_in_a_graph(rng):
    q, out = normal(rng, 2, 1, 16, 128), torch.empty(2, 1, 16, 128, device="cuda", dtype=torch.float16)
    k, v = (normal(rng, 2, 7000, 4, 128) for _ in range(2))
    attention(q, k, v, out=out, backend="sm90")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention(q, k, v, out=out, backend="sm90")
    for _ in range(3):
        for x in (q, k, v):
            x.normal_()
        out.fill_(float("nan"))
        graph.replay()
        check(q, k, v, torch.ones(1, 7000, dtype=torch.bool, device="cuda"), out)
        first = out.clone()
        for _ in range(20):
            graph.replay()
            assert torch.equal(out, first)


def test_parts_of_odd_rows(rng):
    """Rows of an odd number of values, which lie in memory at even places."""
    q, k = normal(rng, 2, 1, 16, 104)[..., :100], normal(rng, 2, 7000, 4, 104)[..., :100]
    v = normal(rng, 2, 7000, 4, 48)[..., :45]
    out = attention(q, k, v, backend="sm90")
    check(q, k, v, torch.ones(1, 7000, dtype=torch.bool, device="cuda"), out)


@pytest.mark.parametrize("kv_len", [2900, 4097])
def test_more_parts_than_fit_at_a_time(kv_len, rng):
    """80 tiles whose keys are read once: more than half of the SMs, and shared all the same."""
    q = normal(rng, 10, 1, 16, 128)
    k, v = (normal(rng, 10, kv_len, 8, 128) for _ in range(2))
    out = attention(q, k, v, backend="sm90")
    check(q, k, v, torch.ones(1, kv_len, dtype=torch.bool, device="cuda"), out)
