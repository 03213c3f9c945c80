"""What the fused GPU kernels, sm90 and wmma, could get wrong and the shared cases do not reach."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import reference
import torch
from attention_cases import Case, padded_lists, random_blocks
from test_attention import run_case

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu
on_each = pytest.mark.parametrize("backend", ["sm90", "wmma"])

LENGTHS = [(1, 1), (1, 799), (113, 203), (239, 1), (1023, 1024), (4224, 4224), (8192, 128), (64, 177), (193, 353)]
MASKS = {
    "full": random_blocks(128, 128, 0.4),
    "partial": random_blocks(64, 32, 0.4, partial=True),
    "padded": padded_lists(128, 64, 3),
    "narrow": padded_lists(64, 16, 7),
    "wide": random_blocks(256, 256, 0.6, partial=True),
    "odd": random_blocks(192, 48, 0.5, partial=True),
    "empty": random_blocks(64, 64, 0.0),
    "sparse": random_blocks(64, 16, 0.02),
}


def normal(rng, *shape, dtype=torch.float16):
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to("cuda", dtype)


def check(q, k, v, allowed, out, lse=None):
    expected = reference.attention(q, k, v, allowed)
    lowprec = reference.attention(q, k, v, allowed, dtype=q.dtype)
    reference.assert_close(out, expected.out, lowprec.out)
    if lse is not None:
        reference.assert_close(lse, expected.lse, lowprec.lse.float())


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("q_len", "kv_len"), LENGTHS, ids=str)
def test_length(q_len, kv_len, causal, head_dim, rng):
    case = Case("length", q_len, kv_len, batch=1, heads=2, kv_heads=1, head_dim=head_dim, causal=causal)
    run_case(case, "sm90", torch.float16, rng)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("head_dims", [(32, 32), (64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)])
@pytest.mark.parametrize("mask", MASKS)
def test_mask(mask, head_dims, band, dtype, rng):
    head_dim, value_dim = head_dims
    case = Case(
        mask,
        500,
        620,
        heads=4,
        kv_heads=int(rng.choice([1, 2, 4])),
        head_dim=head_dim,
        value_dim=value_dim,
        mask=MASKS[mask],
        causal=band == "causal",
        window=(150, 40) if band == "window" else None,
    )
    run_case(case, "sm90", dtype, rng)


@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize(("kv_block", "density", "partial"), [(128, 0.4, False), (32, 0.4, True), (16, 0.02, False)])
def test_two_lists_in_a_cta(kv_block, density, partial, band, rng):
    """Head_dim 64 and more q tiles than CTAs."""
    case = Case(
        "two lists",
        350,
        460,
        batch=3,
        heads=22,
        kv_heads=11,
        mask=random_blocks(128, kv_block, density, partial=partial),
        causal=band == "causal",
        window=(150, 40) if band == "window" else None,
    )
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("q_len", [193, 256, 320, 321])
@pytest.mark.parametrize("kv_block", [32, 128])
def test_parts_of_q(kv_block, q_len, causal, rng):
    """A part for each warpgroup of head_dim 128: of the last tile one may have few rows or none. Short lists, several
    for each CTA."""
    mask = random_blocks(128, kv_block, 0.3, partial=True)
    case = Case("parts", q_len, 460, batch=2, heads=120, kv_heads=30, head_dim=128, mask=mask, causal=causal)
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("mask", [*MASKS, "any q block"])
def test_mask_wmma(mask, head_dim, band, rng):
    case = Case(
        mask,
        500,
        620,
        batch=1,
        kv_heads=int(rng.choice([1, 2, 4])),
        head_dim=head_dim,
        mask=MASKS.get(mask) or random_blocks(int(rng.integers(1, 100)), 32, 0.3, partial=True),
        causal=band == "causal",
        window=(150, 40) if band == "window" else None,
    )
    run_case(case, "wmma", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


def lists(rng, counts, num_blocks, width):
    """Padded lists of those lengths: (1, heads, q blocks, width) indices."""
    order = rng.random((*counts.shape, num_blocks)).argsort(axis=-1)[..., :width]
    return np.ascontiguousarray(order.astype(np.int32))


@on_each
def test_one_long_list_among_short_ones(backend, rng):
    """More q tiles than the chip holds at once, so that they are ordered by length."""
    heads, length = 24, 4096
    counts = rng.integers(0, 3, (1, heads, length // 128), dtype=np.int32)
    counts[0, 3, 17] = length // 128
    counts[0, 20] = 0
    indices = lists(rng, counts, length // 128, length // 128)
    q, k, v = (normal(rng, 1, length, heads, 64) for _ in range(3))
    mask = BlockMask.from_indices(
        torch.from_numpy(indices).cuda(),
        torch.from_numpy(counts).cuda(),
        q_len=length,
        kv_len=length,
        q_block=128,
        kv_block=128,
    )
    out, lse = attention(q, k, v, mask=mask, return_lse=True, backend=backend)
    dense = mask.to_dense()
    for head in (3, 20, 23):
        only = slice(head, head + 1)
        allowed = torch.from_numpy(dense[:, only]).cuda()
        check(q[:, :, only], k[:, :, only], v[:, :, only], allowed, out[:, :, only], lse[:, only])
    again = attention(q, k, v, mask=mask, backend=backend)
    assert torch.equal(out, again)


@on_each
def test_garbage_in_lists_is_absent(backend, rng):
    length, block = 1024, 64
    counts = np.full((1, 2, length // block), 9, np.int32)
    indices = lists(rng, counts, length // block, 9)
    garbage = rng.random(indices.shape) < 0.4
    broken = np.where(garbage, rng.choice([-1, -(2**31), 16, 2**31 - 1], indices.shape), indices).astype(np.int32)
    allowed = np.zeros((1, 2, length // block, length // block), bool)
    for place in np.ndindex(indices.shape):
        if not garbage[place]:
            allowed[(*place[:3], indices[place])] = True
    counts[0, 1, 3] = 2**31 - 1  # clamped to the list's width
    counts[0, 1, 4] = -7  # none
    allowed[0, 1, 4] = False
    q, k, v = (normal(rng, 1, length, 2, 128) for _ in range(3))
    mask = BlockMask.from_indices(
        torch.from_numpy(broken).cuda(),
        torch.from_numpy(counts).cuda(),
        q_len=length,
        kv_len=length,
        q_block=block,
        kv_block=block,
        check=False,
    )
    out, lse = attention(q, k, v, mask=mask, return_lse=True, backend=backend)
    pairs = torch.from_numpy(allowed.repeat(block, 2).repeat(block, 3)).cuda()
    check(q, k, v, pairs, out, lse)


@on_each
def test_graph_replay_sees_changed_inputs_and_lists(backend, rng):
    length, block, heads = 4096, 128, 8
    shape = (1, heads, length // block)
    counts = torch.from_numpy(rng.integers(0, 6, shape, dtype=np.int32)).cuda()
    indices = torch.from_numpy(lists(rng, np.empty(shape), length // block, 6)).cuda()
    q, k, v = (normal(rng, 1, length, heads, 64) for _ in range(3))
    mask = BlockMask.from_indices(indices, counts, q_len=length, kv_len=length, q_block=block, kv_block=block)
    out = torch.empty_like(q)
    attention(q, k, v, mask=mask, out=out, backend=backend)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention(q, k, v, mask=mask, out=out, backend=backend)
    for _ in range(3):
        for array in (q, k, v):
            array.copy_(normal(rng, *array.shape))
        counts.copy_(torch.from_numpy(rng.integers(0, 7, shape, dtype=np.int32)))
        indices.copy_(torch.from_numpy(lists(rng, np.empty(shape), length // block, 6)))
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, attention(q, k, v, mask=mask, backend=backend))
        only = slice(2, 3)
        allowed = torch.zeros(length // block, length // block, dtype=torch.bool)
        for row in range(length // block):
            allowed[row, indices[0, 2, row, : counts[0, 2, row]].cpu().long()] = True
        pairs = allowed.repeat_interleave(block, 0).repeat_interleave(block, 1)[None, None].cuda()
        check(q[:, :, only], k[:, :, only], v[:, :, only], pairs, out[:, :, only])


@on_each
def test_many_streams_and_threads(backend, rng):
    problems = []
    for i in range(8):
        q, k, v = (normal(rng, 1, 700 + 64 * i, 4, 64) for _ in range(3))
        length = q.shape[1]
        mask = padded_lists(64, 64, 5)(Case("stream", length, length, batch=1), rng).to(q) if i % 2 else None
        problems.append((q, k, v, mask))
    expected = [attention(q, k, v, mask=mask, backend=backend) for q, k, v, mask in problems]
    torch.cuda.synchronize()
    failures = []

    def work(index):
        q, k, v, mask = problems[index]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(30):
                out = attention(q, k, v, mask=mask, backend=backend)
            stream.synchronize()
        if not torch.equal(out, expected[index]):
            failures.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def spot_check(q, k, v, out, rows, keys_of):
    """Some rows against the formula, over the keys that each may see."""
    for batch, head, row in rows:
        keys = keys_of(head, row)
        kv_head = head // (q.shape[2] // k.shape[2])
        scores = k[batch, keys, kv_head].double() @ q[batch, row, head].double() / q.shape[-1] ** 0.5
        expected = torch.softmax(scores, 0) @ v[batch, keys, kv_head].double()
        error = (out[batch, row, head].double() - expected).abs().max().item()
        assert error < 2e-3, (batch, head, row, error)


@on_each
def test_long_context_and_offsets_beyond_32_bits(backend):
    length, heads, dim, window = 524288, 32, 128, 1000
    generator = torch.Generator("cuda").manual_seed(7)
    q = torch.randn(1, length, heads, dim, dtype=torch.float16, device="cuda", generator=generator)
    k, v = (torch.randn(1, length, 2, dim, dtype=torch.float16, device="cuda", generator=generator) for _ in range(2))
    assert q.numel() >= 2**31
    out = torch.full_like(q, float("nan"))
    attention(q, k, v, window=(window, 0), out=out, backend=backend)
    rows = [(0, 0, 0), (0, 31, length - 1), (0, 17, 262144), (0, 31, 500000), (0, 5, 999)]
    spot_check(q, k, v, out, rows, lambda head, row: torch.arange(max(0, row - window), row + 1, device="cuda"))
    assert torch.isfinite(out[0, ::4099]).all()

    num_blocks = length // 128
    indices = torch.randint(num_blocks, (1, heads, num_blocks, 4), dtype=torch.int32, device="cuda").sort(-1).values
    indices = indices // 4 * 4 + torch.arange(4, dtype=torch.int32, device="cuda")  # no block twice in a list
    mask = BlockMask.from_indices(indices, q_len=length, kv_len=length, q_block=128, kv_block=128)
    out.fill_(float("nan"))
    attention(q, k, v, mask=mask, out=out, backend=backend)

    def listed(head, row):
        blocks = indices[0, head, row // 128].long()
        return (blocks[:, None] * 128 + torch.arange(128, device="cuda")).flatten()

    spot_check(q, k, v, out, rows, listed)


@on_each
def test_more_heads_than_a_grid_axis(backend, rng):
    batch, heads = 2, 40000
    q, k, v = (normal(rng, batch, 3, heads, 64) for _ in range(3))
    out = attention(q, k, v, causal=True, backend=backend)
    rows = [(0, 0, 0), (1, 39999, 2), (0, 33000, 1)]
    spot_check(q, k, v, out, rows, lambda head, row: torch.arange(row + 1, device="cuda"))


def test_it_is_the_default(rng):
    q, k, v = (normal(rng, 1, 300, 2, 64) for _ in range(3))
    assert torch.equal(attention(q, k, v), attention(q, k, v, backend="sm90"))


@on_each
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", ["below zero", "rising", "falling", "one high key"])
def test_where_a_row_has_its_maximum(shape, masked, backend, rng):
    """A row's maximum follows the scores late, and tiles without a higher one take a short cut."""
    length, heads, head_dim = 1024, 2, 64
    q, k, v = (normal(rng, 1, length, heads, head_dim) for _ in range(3))
    place = torch.linspace(-1, 1, length, device="cuda")
    added = {
        "below zero": torch.full_like(place, -150.0),
        "rising": 200 * place,
        "falling": -200 * place,
        "one high key": torch.where(torch.arange(length, device="cuda") == 700, 300.0, 0.0),
    }[shape]
    q[..., 0] = 4.0
    k[..., 0] += (added / 4).to(k.dtype)[None, :, None]
    allowed = torch.ones(1, heads, length, length, dtype=torch.bool, device="cuda")
    mask = None
    if masked:
        lengths = {"q_len": length, "kv_len": length, "q_block": 128, "kv_block": 64}
        indices = np.broadcast_to(np.arange(3, 16, dtype=np.int32), (1, heads, 8, 13))
        mask = BlockMask.from_indices(torch.from_numpy(indices.copy()).cuda(), None, **lengths)
        allowed[..., : 3 * 64] = False
    out, lse = attention(q, k, v, mask=mask, return_lse=True, backend=backend)
    check(q, k, v, allowed, out, lse)


@on_each
def test_memory_beyond_the_output_is_the_order_of_the_tiles(backend, rng):
    length, block, heads = 16384, 128, 32
    shape = (1, heads, length // block)
    counts = torch.from_numpy(rng.integers(0, 9, shape, dtype=np.int32)).cuda()
    indices = torch.from_numpy(lists(rng, np.empty(shape), length // block, 8)).cuda()
    q, k, v = (normal(rng, 1, length, heads, 64) for _ in range(3))
    mask = BlockMask.from_indices(indices, counts, q_len=length, kv_len=length, q_block=block, kv_block=block)
    out = torch.empty_like(q)
    for causal, listed in ((False, mask), (True, mask), (True, None), (False, None)):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attention(q, k, v, mask=listed, causal=causal, out=out, backend=backend)
        extra = torch.cuda.max_memory_allocated() - before
        wanted = 4 * counts.numel() + 1024 if listed else 512 if causal else 0
        assert extra <= wanted, extra


@on_each
def test_narrow_values_are_written_alone(backend, rng):
    """A value dim of no multiple of 8 in rows of 16 bytes: its neighbours stay as they are."""
    q, k = (normal(rng, 1, 70, 2, 64) for _ in range(2))
    wide = normal(rng, 1, 70, 2, 32)
    v = wide[..., :21]
    store = torch.full((1, 70, 2, 32), 7.0, dtype=torch.float16, device="cuda")
    out = attention(q, k, v, out=store[..., :21], backend=backend)
    check(q, k, v, reference.allowed_pairs(70, 70, device="cuda"), out)
    assert (store[..., 21:] == 7).all()
