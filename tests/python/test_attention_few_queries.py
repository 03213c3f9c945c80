"""Few queries and many keys on the fused GPU kernels: packed query heads, and keys that CTAs share."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from attention_cases import Case, padded_lists, random_blocks
from test_attention import run_case
from test_attention_sm90 import check, normal, on_each

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu


HEAD_DIMS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256))


def few_queries(q_len, kv_len, heads, head_dims, band, rng, *, widest, right=40, **options) -> Case:
    """`heads` and `head_dims` are those of q and of k, of k and of v; `widest`: the most keys before a window's own."""
    return Case(
        f"{q_len} queries",
        q_len,
        kv_len,
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=head_dims[0],
        value_dim=head_dims[1],
        causal=band == "causal",
        window=(int(rng.integers(0, widest)), right) if band == "window" else None,
        **options,
    )


def captured(call) -> torch.cuda.CUDAGraph:
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def check_replays(graph, q, k, v, allowed, out):
    """Right, and the same bits every time."""
    out.fill_(float("nan"))
    graph.replay()
    check(q, k, v, allowed, out)
    first = out.clone()
    for _ in range(20):
        graph.replay()
        assert torch.equal(out, first)


@on_each
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (40, 1)], ids=lambda heads: f"{heads[0]}of{heads[1]}")
@pytest.mark.parametrize("head_dims", [(64, 64), (96, 96), (128, 128), (192, 128), (100, 44), (256, 256)], ids=str)
def test_one_query(head_dims, heads, band, backend, rng):
    """Decoding: the query heads of a kv head in one tile, whose keys several CTAs share."""
    case = few_queries(1, int(rng.integers(5000, 6000)), heads, head_dims, band, rng, widest=4000)
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


# Groups of 2 to 40 query heads, some of which divide no tile; tiles that are partly empty, full, and several.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize(
    "heads", [(8, 4), (6, 2), (28, 4), (32, 4), (40, 1)], ids=lambda heads: f"{heads[0]}of{heads[1]}"
)
@pytest.mark.parametrize("q_len", [2, 4, 7, 16, 32])
def test_packed_heads(q_len, heads, band, dtype, rng):
    """Several queries, as in speculative decoding: the query heads of a kv head in one tile."""
    run_case(packed_case(q_len, 1024, heads, band, rng, batch=int(rng.integers(1, 4))), "sm90", dtype, rng)


def packed_case(q_len, least_keys, heads, band, rng, **options) -> Case:
    return few_queries(
        q_len,
        int(rng.integers(least_keys, 6000)),
        heads,
        rng.choice([*HEAD_DIMS, (104, 48)]).tolist(),
        band,
        rng,
        widest=2000,
        right=None if q_len == 7 else 40,
        layout="bhsd" if rng.random() < 0.5 else "bshd",
        **options,
    )


LISTS_OF_KV_HEADS = {
    "one for all heads": random_blocks(128, 64, 0.5, heads=1),
    "each kv head its own": random_blocks(64, 64, 0.5, heads="kv", batches=2),
    "partial": random_blocks(64, 32, 0.5, heads="kv", partial=True),
    "blocks of 16": random_blocks(64, 16, 0.4, heads=1, partial=True),
    "padded": padded_lists(192, 128, 30, heads="kv"),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("heads", [(8, 4), (28, 4), (40, 1)], ids=lambda heads: f"{heads[0]}of{heads[1]}")
@pytest.mark.parametrize("lists", LISTS_OF_KV_HEADS)
@pytest.mark.parametrize("q_len", [1, 2, 4, 7, 32])
def test_packed_heads_with_lists(q_len, lists, heads, band, dtype, rng):
    """Query heads that share a list in one tile, with several queries or a window."""
    run_case(packed_case(q_len, 4000, heads, band, rng, mask=LISTS_OF_KV_HEADS[lists]), "sm90", dtype, rng)


def test_packed_heads_of_many_sequences(rng):
    """More tiles than SMs: each has all of its keys."""
    q = normal(rng, 40, 5, 12, 64)
    k, v = (normal(rng, 40, 1500, 4, 64) for _ in range(2))
    allowed = reference.allowed_pairs(5, 1500, causal=True, device="cuda")[0, 0]
    check(q, k, v, allowed, attention(q, k, v, causal=True, backend="sm90"))


def test_packed_heads_of_strided_arrays(rng):
    """Q as a slice of a projection's output, out and lse given to and by the caller."""
    fused = normal(rng, 2, 6, 3, 16, 128)
    q, out = fused[:, :, 0, :12], torch.full((2, 6, 20, 128), float("nan"), device="cuda", dtype=torch.float16)
    k, v = (normal(rng, 2, 3000, 4, 256)[..., :128] for _ in range(2))
    result, lse = attention(q, k, v, causal=True, out=out[:, :, 4:16], return_lse=True, backend="sm90")
    allowed = reference.allowed_pairs(6, 3000, causal=True, device="cuda")
    expected = reference.attention(q, k, v, allowed)
    lowprec = reference.attention(q, k, v, allowed, dtype=torch.float16)
    reference.assert_close(result, expected.out, lowprec.out)
    reference.assert_close(lse, expected.lse, lowprec.lse.float(), what="lse")
    assert out[:, :, :4].isnan().all()
    assert out[:, :, 16:].isnan().all()


@pytest.mark.parametrize("q_len", [1, 5])
def test_shared_keys_in_a_graph(q_len, rng):
    q, out = normal(rng, 2, q_len, 16, 128), torch.empty(2, q_len, 16, 128, device="cuda", dtype=torch.float16)
    k, v = (normal(rng, 2, 7000, 4, 128) for _ in range(2))
    graph = captured(lambda: attention(q, k, v, out=out, backend="sm90"))
    for _ in range(3):
        for x in (q, k, v):
            x.normal_()
        check_replays(graph, q, k, v, torch.ones(q_len, 7000, dtype=torch.bool, device="cuda"), out)


LISTS = {
    "each head its own": random_blocks(64, 64, 0.4),
    "one for all heads": random_blocks(128, 64, 0.3, heads=1, batches=2),
    "each kv head its own": random_blocks(64, 64, 0.3, heads="kv", batches=2),
    "one for all heads, partial": random_blocks(64, 32, 0.4, heads=1, partial=True),
    "partial": random_blocks(64, 16, 0.3, partial=True),
    "padded": padded_lists(128, 128, 30),
    "padded, short": padded_lists(64, 16, 40),
    "few entries": random_blocks(64, 128, 0.03),
    "empty": random_blocks(64, 64, 0.0, heads=1),
}


@on_each
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (80, 1)], ids=lambda heads: f"{heads[0]}of{heads[1]}")
@pytest.mark.parametrize("lists", LISTS)
def test_one_query_with_lists(lists, heads, band, backend, rng):
    """Decoding from some blocks: query heads that share a list in one tile, and CTAs that share its blocks."""
    kv_len, head_dims = int(rng.integers(5000, 6000)), rng.choice([*HEAD_DIMS, (100, 44)]).tolist()
    case = few_queries(1, kv_len, heads, head_dims, band, rng, widest=4000, mask=LISTS[lists])
    run_case(case, backend, torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("lists", ["each head its own", "partial", "padded", "few entries"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(3, 9001), (200, 5000), (600, 4500)], ids=str)
def test_shared_lists(q_len, kv_len, lists, band, head_dim, rng):
    """Fewer q tiles than SMs and long lists: CTAs share the blocks of one."""
    case = Case(
        "shared lists",
        q_len,
        kv_len,
        batch=1,
        heads=4,
        kv_heads=2,
        head_dim=head_dim,
        causal=band == "causal",
        window=(2500, 40) if band == "window" else None,
        mask=LISTS[lists],
    )
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize(
    ("batch", "q_len", "heads", "lists"),
    [(1, 1, 16, 1), (1, 1, 16, 16), (2, 3, 12, 4)],
    ids=["one list", "lists of heads", "lists of packed heads"],
)
def test_lists_in_a_graph(batch, q_len, heads, lists, rng):
    """Counts and indices that change in place, lists that become empty; garbage among them is left out."""
    q = normal(rng, batch, q_len, heads, 128)
    k, v = (normal(rng, batch, 7000, 4, 128) for _ in range(2))
    out = torch.empty_like(q)
    indices = torch.zeros(batch, lists, 1, 110, dtype=torch.int32, device="cuda")
    counts = torch.full((batch, lists, 1), 100, dtype=torch.int32, device="cuda")
    mask = BlockMask.from_indices(indices, counts, q_len=q_len, kv_len=7000, q_block=64, kv_block=64, check=False)
    graph = captured(lambda: attention(q, k, v, mask=mask, causal=True, out=out, backend="sm90"))
    causal = reference.allowed_pairs(q_len, 7000, causal=True, device="cuda")
    for replay in range(3):
        listed = torch.zeros(batch, lists, 1, 7000, dtype=torch.bool, device="cuda")
        for at in np.ndindex(batch, lists):
            count = int(rng.integers(0, 111))
            blocks = torch.from_numpy(rng.permutation(110)[:count].astype("int32")).cuda()
            garbage = torch.from_numpy(rng.choice([-1, -(2**31), 110, 2**31 - 1], 110).astype("int32")).cuda()
            indices[at][0] = torch.cat([blocks, garbage])[:110]
            empty = lists > 1 and at[1] == replay
            counts[at][0] = 0 if empty else min(110, count + 5)
            keys = (blocks[:, None] * 64 + torch.arange(64, device="cuda")).flatten()
            listed[at][0, keys[keys < 7000]] = not empty
        for x in (q, k, v):
            x.normal_()
        check_replays(graph, q, k, v, listed.repeat_interleave(heads // lists, 1) & causal, out)


def test_parts_of_odd_rows(rng):
    """Rows of an odd number of values, which lie in memory at even places."""
    q, k = normal(rng, 2, 1, 16, 104)[..., :100], normal(rng, 2, 7000, 4, 104)[..., :100]
    v = normal(rng, 2, 7000, 4, 48)[..., :45]
    out = attention(q, k, v, backend="sm90")
    check(q, k, v, torch.ones(1, 7000, dtype=torch.bool, device="cuda"), out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_parts_are_rounded_once(dtype, rng):
    """Equal weights. Of most keys 55 % have the value after 1: the mean of their parts would be rounded up to it."""
    q, k = torch.zeros(1, 1, 32, 128, device="cuda", dtype=dtype), normal(rng, 1, 8192, 8, 128, dtype=dtype)
    eps = torch.finfo(dtype).eps
    key = torch.arange(8192, device="cuda")
    v = 1 + eps * ((key < 4915) & (key % 20 < 11)).to(dtype)
    out = attention(q, k, v[None, :, None, None].expand(1, -1, 8, 128).contiguous(), backend="sm90")
    error = (out.double() - v.double().mean()).abs().max().item()
    assert error <= 0.55 * eps, f"error {error / eps:.2f} units in the last place"


@pytest.mark.parametrize("kv_len", [2900, 4097])
def test_more_parts_than_fit_at_a_time(kv_len, rng):
    """80 tiles whose keys are read once: more than half of the SMs, and shared all the same."""
    q = normal(rng, 10, 1, 16, 128)
    k, v = (normal(rng, 10, kv_len, 8, 128) for _ in range(2))
    out = attention(q, k, v, backend="sm90")
    check(q, k, v, torch.ones(1, kv_len, dtype=torch.bool, device="cuda"), out)


@pytest.mark.parametrize("mask", [None, random_blocks(64, 64, 0.9, heads="kv")], ids=["all", "lists"])
@pytest.mark.parametrize("q_len", [1, 3])
@pytest.mark.parametrize(("head_dim", "batch"), [(64, 50), (128, 17), (256, 17)])
def test_shared_last_round(head_dim, batch, q_len, mask, rng):
    """Four tiles more than full rounds have: these are taken whole, the four are shared."""
    shape = {"batch": batch, "heads": 16, "kv_heads": 8, "head_dim": head_dim}
    run_case(Case("last round", q_len, 1500, causal=True, mask=mask, **shape), "sm90", torch.float16, rng)
