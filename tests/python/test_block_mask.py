"""BlockMask against dense formulas that know nothing of blocks."""

from __future__ import annotations

import builtins
import re
import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, noop_mask

import sparsek
from sparsek import BlockMask, frameworks

lengths = st.integers(0, 70)
blocks = st.integers(1, 40)
sides = st.none() | st.integers(0, 80)
seeds = st.integers(0, 2**32 - 1)
thorough = settings(max_examples=150, deadline=None)


def positions(q_len, kv_len):
    """Each query's place among the keys (a column) and the keys (a row): aligned to the bottom right."""
    return np.arange(q_len)[:, None] + kv_len - q_len, np.arange(kv_len)[None, :]


def windowed(q_len, kv_len, left, right):
    query, key = positions(q_len, kv_len)
    seen = np.ones((q_len, kv_len), bool)
    if left is not None:
        seen &= key >= query - left
    if right is not None:
        seen &= key <= query + right
    return seen


def random_dense(rng, shape, q_block, kv_block):
    """Random pairs, among them whole blocks that are empty and whole blocks that are full."""
    dense = rng.random(shape) < rng.random()
    rows, cols = np.arange(shape[-2]) // q_block, np.arange(shape[-1]) // kv_block
    kinds = rng.integers(0, 3, (*shape[:-2], shape[-2] // q_block + 1, shape[-1] // kv_block + 1))
    kinds = kinds[..., rows[:, None], cols[None, :]]
    return np.where(kinds == 0, False, np.where(kinds == 1, True, dense))


def decode(mask):
    """What the arrays say, entry by entry, as include/sparsek/block_mask.h has it."""
    host = {}
    for name in ("indices", "offsets", "counts", "bitmap_indices", "bitmaps"):
        array = getattr(mask, name)
        host[name] = None if array is None else np.asarray(array)
    assert (host["offsets"] is None) != (host["counts"] is None)
    num_q_blocks = -(-mask.q_len // mask.q_block)
    indices = host["indices"].reshape(-1)
    dense = np.zeros((mask.num_batches, mask.num_heads, mask.q_len, mask.kv_len), bool)
    for row in range(mask.num_batches * mask.num_heads * num_q_blocks):
        if host["offsets"] is not None:
            entries = range(host["offsets"][row], host["offsets"][row + 1])
        else:
            first = row * host["indices"].shape[-1]
            entries = range(first, first + host["counts"].reshape(-1)[row])
        outer, q_block = divmod(row, num_q_blocks)
        batch, head = divmod(outer, mask.num_heads)
        for entry in entries:
            first_q, first_kv = q_block * mask.q_block, indices[entry] * mask.kv_block
            part = dense[batch, head, first_q : first_q + mask.q_block, first_kv : first_kv + mask.kv_block]
            bitmap = -1 if host["bitmap_indices"] is None else host["bitmap_indices"].reshape(-1)[entry]
            if bitmap < 0:
                part[:] = True
                continue
            for c in range(part.shape[1]):
                words = host["bitmaps"][bitmap, : part.shape[0], c // 32]
                part[:, c] = words >> (c % 32) & 1
    return dense


def check_built(mask, dense):
    """A mask that a constructor or an operation built: exact, nothing empty listed, nothing full as a bitmap."""
    dense = dense.reshape((1,) * (4 - dense.ndim) + dense.shape)
    assert mask.num_batches == dense.shape[0]
    assert mask.num_heads == dense.shape[1]
    np.testing.assert_array_equal(decode(mask), dense)
    np.testing.assert_array_equal(mask.to_dense(), dense)
    assert mask.num_pairs == dense.sum()

    nq, nk = -(-mask.q_len // mask.q_block), -(-mask.kv_len // mask.kv_block)
    listed = partial = 0
    for batch in dense.reshape(dense.shape[0] * dense.shape[1], *dense.shape[2:]):
        for i in range(nq):
            for j in range(nk):
                q_slice = slice(i * mask.q_block, (i + 1) * mask.q_block)
                block = batch[q_slice, j * mask.kv_block : (j + 1) * mask.kv_block]
                listed += block.any()
                partial += block.any() and not block.all()
    indices = np.asarray(mask.indices)
    assert len(indices) == listed
    assert mask.density == listed / max(1, dense.shape[0] * dense.shape[1] * nq * nk)
    if mask.bitmaps is None:
        assert partial == 0
        return
    bitmaps, bitmap_indices = np.asarray(mask.bitmaps), np.asarray(mask.bitmap_indices)
    assert np.count_nonzero(bitmap_indices >= 0) == partial
    assert len(np.unique(bitmaps, axis=0)) == len(bitmaps), "equal bitmaps are not shared"
    assert set(bitmap_indices[bitmap_indices >= 0]) == set(range(len(bitmaps)))
    assert (indices.dtype, bitmap_indices.dtype, bitmaps.dtype) == (np.int32,) * 3
    assert np.asarray(mask.offsets).dtype == np.int64


# Masks from a formula


@thorough
@given(lengths, lengths, blocks, blocks)
def test_causal(q_len, kv_len, q_block, kv_block):
    mask = BlockMask.causal(q_len, kv_len, q_block=q_block, kv_block=kv_block)
    check_built(mask, windowed(q_len, kv_len, None, 0))


@thorough
@given(lengths, lengths, sides, sides, blocks, blocks)
def test_sliding_window(q_len, kv_len, left, right, q_block, kv_block):
    mask = BlockMask.sliding_window(q_len, kv_len, (left, right), q_block=q_block, kv_block=kv_block)
    check_built(mask, windowed(q_len, kv_len, left, right))


def test_sliding_window_of_one_number():
    mask = BlockMask.sliding_window(50, 50, 7, q_block=16, kv_block=16)
    check_built(mask, windowed(50, 50, 7, 7))


@thorough
@given(
    st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)), max_size=6),
    st.booleans(),
    st.booleans(),
    blocks,
    blocks,
)
def test_documents_of_lengths(pairs, same, causal, q_block, kv_block):
    queries = [q for q, _ in pairs]
    keys = queries if same else [k for _, k in pairs]
    dense = np.zeros((sum(queries), sum(keys)), bool)
    row = col = 0
    for q, k in zip(queries, keys, strict=True):
        dense[row : row + q, col : col + k] = windowed(q, k, None, 0 if causal else None)
        row, col = row + q, col + k
    mask = BlockMask.documents(
        queries, kv_lengths=None if same else keys, causal=causal, q_block=q_block, kv_block=kv_block
    )
    check_built(mask, dense)


@thorough
@given(st.integers(1, 3), st.integers(1, 60), st.booleans(), blocks, blocks, seeds)
def test_documents_of_ids(batch, length, causal, q_block, kv_block, seed):
    ids = np.cumsum(np.random.default_rng(seed).random((batch, length)) < 0.15, axis=1)
    dense = ids[:, :, None] == ids[:, None, :]
    if causal:
        dense &= windowed(length, length, None, 0)
    mask = BlockMask.documents(document_ids=-ids, causal=causal, q_block=q_block, kv_block=kv_block)
    check_built(mask, dense[:, None])


def test_documents_of_tensors_are_tensors():
    mask = BlockMask.documents(torch.tensor([3, 5]), q_block=4, kv_block=4)
    assert isinstance(mask.indices, torch.Tensor)
    assert mask.q_len == 8


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "lengths: expected either lengths or document_ids"),
        ({"lengths": [1], "document_ids": np.zeros(3, int)}, ValueError, "either lengths or document_ids"),
        ({"document_ids": np.zeros(3, int), "kv_lengths": [3]}, ValueError, "kv_lengths: expected None"),
        ({"document_ids": np.array([0, 1, 0])}, ValueError, "document 0 in more than one piece"),
        ({"document_ids": np.zeros((0, 3), int)}, ValueError, re.escape("at least one token, got shape (0, 3)")),
        ({"document_ids": np.zeros((1, 1, 3), int)}, ValueError, "document_ids: expected 1 or 2 axes"),
        ({"lengths": [2, -1]}, ValueError, "lengths: expected lengths of at least 0, got -1"),
        ({"lengths": [2], "kv_lengths": [-3]}, ValueError, "kv_lengths: expected lengths of at least 0, got -3"),
        ({"lengths": [2, 3], "kv_lengths": [2]}, ValueError, "kv_lengths: expected as many as lengths, 2, got 1"),
        ({"lengths": [2.5]}, TypeError, "lengths: expected integers, got float64"),
        ({"lengths": 4}, TypeError, "lengths: expected an array"),
    ],
)
def test_documents_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        BlockMask.documents(**arguments)


def test_window_without_bounds():
    assert BlockMask.sliding_window(8, 8, None).density == 1
    assert BlockMask.sliding_window(8, 8, (None, None)).density == 1


@pytest.mark.parametrize(
    ("window", "error", "message"),
    [
        (-1, ValueError, "window: expected at least 0, got -1"),
        ((2, -3), ValueError, "window: expected at least 0, got -3"),
        ((3,), ValueError, re.escape("window: expected (left, right) or one number for both, got (3,)")),
        ((1, 2, 3), ValueError, re.escape("got (1, 2, 3)")),
        ((0.5, 0), TypeError, "window: expected an integer, got float"),
        ("ab", TypeError, "window: expected an integer, got str"),
        (True, TypeError, "window: expected an integer, got bool"),
    ],
)
def test_window_refuses(window, error, message):
    with pytest.raises(error, match=message):
        BlockMask.sliding_window(8, 8, window)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"q_len": -1}, ValueError, "q_len: expected at least 0, got -1"),
        ({"kv_len": 2.0}, TypeError, "kv_len: expected an integer, got float"),
        ({"q_block": 0}, ValueError, "q_block: expected at least 1, got 0"),
        ({"kv_block": "x"}, TypeError, "kv_block: expected an integer, got str"),
    ],
)
def test_sizes_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        BlockMask.causal(**{"q_len": 8, "kv_len": 8, **arguments})


@pytest.mark.parametrize(
    ("build", "pairs", "num_bitmaps"),
    [
        (lambda: BlockMask.causal(131072, 131072), 131072 * 131073 // 2, 1),
        (lambda: BlockMask.causal(131072, 131072 + 5), 131072 * 131073 // 2 + 5 * 131072, 2),
        (lambda: BlockMask.sliding_window(524288, 524288, (4095, 0)), 4096 * 524288 - 4095 * 4096 // 2, 2),
        (lambda: BlockMask.documents([4096] * 128, causal=True), 128 * 4096 * 4097 // 2, 1),
    ],
)
def test_long_masks_are_small_and_fast(build, pairs, num_bitmaps):
    build()  # imports and first allocations
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        mask = build()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1
    assert mask.num_pairs == pairs
    assert len(mask.bitmaps) == num_bitmaps
    listed = len(mask.indices)
    assert mask.nbytes == 8 * len(mask.offsets) + 8 * listed + num_bitmaps * 128 * 16

    tracemalloc.start()
    build()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 160 * 2**20  # one bit for each of 131072^2 pairs would be 2 GiB


# Masks from dense arrays and functions


@thorough
@given(st.lists(st.integers(1, 3), max_size=2), lengths, lengths, blocks, blocks, seeds)
def test_from_dense(outer, q_len, kv_len, q_block, kv_block, seed):
    dense = random_dense(np.random.default_rng(seed), (*outer, q_len, kv_len), q_block, kv_block)
    check_built(BlockMask.from_dense(dense, q_block=q_block, kv_block=kv_block), dense)


def test_from_dense_shares_bitmaps():
    dense = np.tile(windowed(32, 32, None, 0), (2, 3, 4, 4))
    mask = BlockMask.from_dense(dense, q_block=32, kv_block=32)
    check_built(mask, dense)
    assert len(mask.bitmaps) == 1


def test_from_dense_tensor_in_any_memory_order():
    dense = torch.rand(40, 2, 50).transpose(0, 1) < 0.3
    mask = BlockMask.from_dense(dense, q_block=16, kv_block=16)
    assert isinstance(mask.indices, torch.Tensor)
    check_built(mask, dense.numpy())


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.ones((4, 4)), TypeError, "mask: expected a bool numpy array, got float64 numpy"),
        (torch.ones(4, 4, dtype=torch.uint8), TypeError, "mask: expected a bool torch array, got uint8 torch"),
        (np.ones(4, bool), ValueError, re.escape("mask: expected shape (q_len, kv_len), ")),
        (np.ones((0, 4, 4), bool), ValueError, re.escape("got (0, 4, 4)")),
        ([[True]], TypeError, "mask: expected an array"),
    ],
)
def test_from_dense_refuses(mask, error, message):
    with pytest.raises(error, match=message):
        BlockMask.from_dense(mask)


@thorough
@given(st.integers(1, 3), st.integers(1, 3), lengths, lengths, blocks, blocks, st.booleans(), seeds)
def test_from_mask_mod(batch, heads, q_len, kv_len, q_block, kv_block, as_torch, seed):
    dense = random_dense(np.random.default_rng(seed), (batch, heads, q_len, kv_len), q_block, kv_block)
    table = torch.as_tensor(dense) if as_torch else dense
    mask = BlockMask.from_mask_mod(
        lambda b, h, q_idx, kv_idx: table[b, h, q_idx, kv_idx],
        batch=batch,
        heads=heads,
        q_len=q_len,
        kv_len=kv_len,
        q_block=q_block,
        kv_block=kv_block,
        like=torch.empty(0) if as_torch else None,
    )
    assert isinstance(mask.indices, torch.Tensor if as_torch else np.ndarray)
    check_built(mask, dense)


@pytest.mark.parametrize("like", [None, torch.empty(0)])
@pytest.mark.parametrize(
    "mask_mod",
    [
        lambda b, h, q_idx, kv_idx: kv_idx < 9,
        lambda b, h, q_idx, kv_idx: q_idx > 20,
        lambda b, h, q_idx, kv_idx: h == 1,
        lambda b, h, q_idx, kv_idx: True,
        lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (kv_idx > 3) | (h == 0),
    ],
)
def test_from_mask_mod_broadcasts(mask_mod, like):
    heads = np.arange(2)[:, None, None]
    dense = mask_mod(0, heads, np.arange(30)[:, None], np.arange(21)[None, :])
    mask = BlockMask.from_mask_mod(mask_mod, heads=2, q_len=30, kv_len=21, q_block=8, kv_block=10, like=like)
    check_built(mask, np.broadcast_to(dense, (2, 30, 21)))


@pytest.mark.parametrize(
    ("mask_mod", "error", "message"),
    [
        (lambda b, h, q, kv: q - kv, TypeError, "mask_mod: expected a bool numpy array, got int64 numpy"),
        (lambda b, h, q, kv: torch.ones(1, dtype=torch.bool), TypeError, "mask_mod: .* got bool torch"),
        (lambda b, h, q, kv: np.ones((2, 8, 9), bool), ValueError, re.escape("broadcasts to (8, 9), got shape (2")),
        (lambda b, h, q, kv: np.ones(8, bool), ValueError, re.escape("broadcasts to (8, 9), got shape (8,)")),
        (lambda b, h, q, kv: "no", TypeError, "mask_mod: expected an array"),
    ],
)
def test_from_mask_mod_refuses(mask_mod, error, message):
    with pytest.raises(error, match=message):
        BlockMask.from_mask_mod(mask_mod, q_len=8, kv_len=9)


def test_from_mask_mod_holds_one_stripe():
    length = 8192
    tracemalloc.start()
    mask = BlockMask.from_mask_mod(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, q_len=length, kv_len=length)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert mask.num_pairs == length * (length + 1) // 2
    assert peak < length * length // 8


# PyTorch's BlockMask

document_of_token = torch.cumsum(torch.arange(150) % 37 == 36, 0)
prefix_of_batch = torch.tensor([40, 90])
distance_of_head = torch.tensor([5, 30, 200])


def flex_causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def flex_documents(b, h, q_idx, kv_idx):
    return document_of_token[q_idx] == document_of_token[kv_idx]


def flex_prefix(b, h, q_idx, kv_idx):
    return (kv_idx < prefix_of_batch[b]) | (q_idx >= kv_idx)


def flex_distance(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= distance_of_head[h]


def flex_rows_of_head(b, h, q_idx, kv_idx):
    return torch.stack([document_of_token] * 3)[h][kv_idx] <= b + 1


@pytest.mark.parametrize(
    "mask_mod",
    [
        noop_mask,
        flex_causal,
        flex_documents,
        flex_prefix,
        flex_distance,
        flex_rows_of_head,
        and_masks(flex_causal, flex_documents),
    ],
)
@pytest.mark.parametrize(("q_len", "kv_len"), [(128, 128), (150, 150), (100, 149)])
@pytest.mark.parametrize("block", [(32, 32), (64, 16)])
@pytest.mark.parametrize(("batch", "heads"), [(None, None), (2, 3)])
def test_from_flex(mask_mod, q_len, kv_len, block, batch, heads):
    flex = create_block_mask(mask_mod, batch, heads, q_len, kv_len, device="cpu", BLOCK_SIZE=block)
    mask = BlockMask.from_flex(flex)
    assert isinstance(mask.indices, torch.Tensor)
    assert (mask.q_block, mask.kv_block) == block
    expected = create_mask(mask_mod, batch or 1, heads or 1, q_len, kv_len, device="cpu")
    check_built(mask, expected.numpy())


def test_from_flex_takes_its_lists_as_they_are():
    # The lists see less than mask_mod: only what they name is evaluated, full blocks are not.
    counts = torch.tensor([[[1, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[0, 9], [2, 0]]]], dtype=torch.int32)
    full_counts = torch.tensor([[[1, 0]]], dtype=torch.int32)
    full_indices = torch.tensor([[[[2, 9], [9, 9]]]], dtype=torch.int32)
    seen = []

    def mask_mod(b, h, q_idx, kv_idx):
        seen.append(1)
        return q_idx % 3 == kv_idx % 3

    flex = FlexBlockMask.from_kv_blocks(
        counts, indices, full_counts, full_indices, BLOCK_SIZE=16, mask_mod=mask_mod, seq_lengths=(32, 48)
    )
    mask = BlockMask.from_flex(flex)
    query, key = np.arange(32)[:, None], np.arange(48)[None, :]
    listed = np.kron(np.array([[1, 0, 0], [1, 0, 1]]), np.ones((16, 16))) > 0
    expected = listed & (query % 3 == key % 3)
    expected[:16, 32:] = True
    check_built(mask, expected)
    assert seen


def test_from_flex_without_mask_mod_has_full_blocks():
    counts, indices = torch.tensor([[[1, 1]]]), torch.tensor([[[[1], [0]]]])
    flex = FlexBlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=8, seq_lengths=(16, 16))
    mask = BlockMask.from_flex(flex)
    assert mask.bitmaps is None
    assert np.asarray(mask.indices).tolist() == [1, 0]


def test_from_flex_refuses_others():
    with pytest.raises(TypeError, match=r"flex_block_mask: expected a torch\.nn.attention.flex_attention.BlockMask"):
        BlockMask.from_flex(np.ones((2, 2)))


# Algebra


@st.composite
def mask_pairs(draw):
    q_len, kv_len, q_block, kv_block = (draw(values) for values in (lengths, lengths, blocks, blocks))
    rng = np.random.default_rng(draw(seeds))
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    made = []
    for _ in range(2):
        outer = (batch if draw(st.booleans()) else 1, heads if draw(st.booleans()) else 1)
        dense = random_dense(rng, (*outer, q_len, kv_len), q_block, kv_block)
        made.append((BlockMask.from_dense(dense, q_block=q_block, kv_block=kv_block), dense))
    return made


@thorough
@given(mask_pairs())
def test_and_or_transpose(made):
    (a, dense_a), (b, dense_b) = made
    check_built(a & b, dense_a & dense_b)
    check_built(a | b, dense_a | dense_b)
    transposed = a.transpose()
    assert (transposed.q_block, transposed.kv_block) == (a.kv_block, a.q_block)
    check_built(transposed, dense_a.swapaxes(2, 3))
    check_built(transposed.transpose(), dense_a)


def test_and_of_documents_and_window():
    mask = BlockMask.documents([40, 60], q_block=16, kv_block=16) & BlockMask.sliding_window(
        100, 100, (9, 0), q_block=16, kv_block=16
    )
    same = np.repeat([0, 1], [40, 60])
    check_built(mask, (same[:, None] == same[None, :]) & windowed(100, 100, 9, 0))


def test_combined_with_unsorted_padded_lists():
    indices = torch.tensor([[2, 0, 7], [1, 9, 9]], dtype=torch.int32)
    mask = BlockMask.from_indices(indices, torch.tensor([2, 1]), q_len=16, kv_len=24, q_block=8, kv_block=8)
    causal = BlockMask.causal(16, 24, q_block=8, kv_block=8)
    both = mask & causal
    assert isinstance(both.indices, torch.Tensor)
    assert isinstance((causal & mask).indices, np.ndarray)
    check_built(both, mask.to_dense() & windowed(16, 24, None, 0))
    check_built(mask.transpose(), mask.to_dense().swapaxes(2, 3))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (BlockMask.causal(16, 32, q_block=8, kv_block=8), "same q_len, got 32 and 16"),
        (BlockMask.causal(32, 31, q_block=8, kv_block=8), "same kv_len, got 32 and 31"),
        (BlockMask.causal(32, 32, q_block=4, kv_block=8), "same q_block, got 8 and 4"),
        (BlockMask.causal(32, 32, q_block=8, kv_block=4), "same kv_block, got 8 and 4"),
        (BlockMask.from_dense(np.ones((3, 1, 32, 32), bool), q_block=8, kv_block=8), "num_batches .* got 2 and 3"),
        (BlockMask.from_dense(np.ones((1, 3, 32, 32), bool), q_block=8, kv_block=8), "num_heads .* got 4 and 3"),
    ],
)
def test_combining_refuses(other, message):
    mask = BlockMask.from_dense(np.ones((2, 4, 32, 32), bool), q_block=8, kv_block=8)
    with pytest.raises(ValueError, match=message):
        mask & other
    with pytest.raises(ValueError, match="expected masks"):
        mask | other


def test_combining_with_something_else():
    with pytest.raises(TypeError, match="unsupported operand"):
        BlockMask.causal(8, 8) & np.ones((8, 8), bool)


# Lists that a caller gives

SIZES = {"q_len": 32, "kv_len": 48, "q_block": 16, "kv_block": 16}


def int32(values):
    return np.array(values, np.int32)


@thorough
@given(st.integers(1, 3), st.integers(1, 3), lengths, lengths, blocks, blocks, st.booleans(), seeds)
def test_given_lists(batch, heads, q_len, kv_len, q_block, kv_block, padded, seed):
    rng = np.random.default_rng(seed)
    nq, nk, words = -(-q_len // q_block), -(-kv_len // kv_block), -(-kv_block // 32)
    room = nk + int(rng.integers(0, 3))
    indices = rng.integers(-(2**31), 2**31, (batch, heads, nq, room), np.int32)  # the padding is garbage
    counts = rng.integers(0, nk + 1, (batch, heads, nq), np.int32)
    for place in np.ndindex(counts.shape):
        indices[place][: counts[place]] = rng.permutation(nk)[: counts[place]]
    bitmaps = rng.integers(0, 2**32, (3, q_block, words), np.uint32)
    bitmap_indices = rng.integers(-1, 3, indices.shape, np.int32)
    sizes = {"q_len": q_len, "kv_len": kv_len, "q_block": q_block, "kv_block": kv_block, "bitmaps": bitmaps}
    if padded:
        mask = BlockMask.from_indices(indices, counts, bitmap_indices=bitmap_indices, **sizes)
    else:
        used = np.arange(room) < counts[..., None]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        mask = BlockMask.from_csr(
            offsets,
            indices[used],
            num_batches=batch,
            num_heads=heads,
            bitmap_indices=bitmap_indices[used],
            **sizes,
        )
    dense = decode(mask)
    np.testing.assert_array_equal(mask.to_dense(), dense)
    assert mask.num_pairs == dense.sum()
    assert mask.density == counts.sum() / max(1, counts.size * nk)
    check_built(mask & mask, dense)
    check_built(mask | mask, dense)


@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (2, 4, 2, 3)])
def test_padded_lists_of_every_rank(shape):
    indices = np.broadcast_to(int32([2, 0, 1]), shape)
    mask = BlockMask.from_indices(indices, **SIZES)
    assert mask.indices.shape == (1,) * (4 - len(shape)) + shape
    assert mask.counts.shape == mask.indices.shape[:-1]
    assert mask.density == 1
    assert mask.to_dense().all()


def test_numpy_lists_are_not_copied():
    indices, counts = int32([[0, 1], [2, 0]]), int32([1, 1])
    bitmaps, bitmap_indices = np.full((2, 16, 1), 0xFFFF, np.uint32), int32([[0, -1], [1, 0]])
    mask = BlockMask.from_indices(indices, counts, bitmaps=bitmaps, bitmap_indices=bitmap_indices, **SIZES)
    for array, held in ((indices, "indices"), (counts, "counts"), (bitmaps, "bitmaps"), (bitmap_indices,) * 2):
        held = getattr(mask, held) if isinstance(held, str) else mask.bitmap_indices
        assert np.shares_memory(array, held)
    assert mask.num_pairs == 512
    counts[0] = 2
    indices[1, 0] = 1
    expected = np.zeros((32, 48), bool)
    expected[:16, :32] = expected[16:, 16:32] = True
    np.testing.assert_array_equal(mask.to_dense()[0, 0], expected)

    offsets, columns = np.array([0, 1, 3]), int32([2, 0, 1])
    mask = BlockMask.from_csr(offsets, columns, **SIZES)
    assert np.shares_memory(offsets, mask.offsets)
    assert np.shares_memory(columns, mask.indices)


def test_tensors_are_not_copied():
    indices = torch.tensor([[[0, 1], [2, 0]]] * 3, dtype=torch.int32)
    counts = torch.tensor([[1, 2]] * 3, dtype=torch.int32)
    bitmaps = torch.zeros(1, 16, 1, dtype=torch.uint32)
    mask = BlockMask.from_indices(
        indices, counts, bitmaps=bitmaps, bitmap_indices=torch.full_like(indices, -1), **SIZES
    )
    assert mask.num_heads == 3
    assert mask.indices.data_ptr() == indices.data_ptr()
    assert mask.counts.data_ptr() == counts.data_ptr()
    assert mask.bitmaps.data_ptr() == bitmaps.data_ptr()
    assert mask.bitmaps.dtype == torch.int32
    before = mask.num_pairs
    counts.zero_()
    assert (before, mask.num_pairs) == (3 * 3 * 256, 0)


class Foreign:
    """An array of a library that sparsek does not know."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_foreign_arrays_are_not_copied():
    indices = int32([[0, 1], [2, 0]])
    mask = BlockMask.from_indices(Foreign(indices), **SIZES)
    assert np.shares_memory(mask.indices, indices)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64, np.uint64])
def test_other_integers_are_converted(dtype):
    mask = BlockMask.from_indices(np.array([[0, 2], [1, 0]], dtype), np.array([2, 1], dtype), **SIZES)
    assert (mask.indices.dtype, mask.counts.dtype) == (np.int32, np.int32)
    assert mask.num_pairs == 3 * 256
    mask = BlockMask.from_csr(np.array([0, 1, 2], dtype), np.array([2, 0], dtype), **SIZES)
    assert (mask.indices.dtype, mask.offsets.dtype) == (np.int32, np.int64)
    assert mask.num_pairs == 2 * 256


def test_arrays_that_are_not_contiguous_are_copied():
    wide = np.zeros((2, 6), np.int32)
    wide[:, ::2] = [[0, 1, 2], [2, 1, 0]]
    mask = BlockMask.from_indices(wide[:, ::2], **SIZES)
    assert mask.indices.flags.c_contiguous
    assert mask.to_dense().all()


BITMAPS = np.zeros((2, 16, 1), np.uint32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"indices": [[0], [0]]}, TypeError, "indices: expected an array"),
        ({"indices": np.zeros((2, 1))}, TypeError, "indices: expected an integer dtype, got float64"),
        ({"indices": int32([0, 1])}, ValueError, re.escape("indices: expected shape (nq, max_count)")),
        ({"indices": int32([[0], [0], [0]])}, ValueError, re.escape("ceil(q_len / q_block) = 2, got (3, 1)")),
        ({"indices": np.zeros((1, 1, 1, 2, 1), np.int32)}, ValueError, re.escape("got (1, 1, 1, 2, 1)")),
        ({"indices": np.zeros((0, 2, 1), np.int32)}, ValueError, re.escape("got (0, 2, 1)")),
        (
            {"indices": int32([[0, 1], [3, 0]])},
            ValueError,
            re.escape("indices: expected block indices from 0 to 2, got 3 (batch 0, head 0, q block 1)"),
        ),
        (
            {"indices": np.array([[[0], [0]], [[0], [-1]]])},
            ValueError,
            re.escape("indices: expected block indices from 0 to 2, got -1 (batch 0, head 1, q block 1)"),
        ),
        ({"indices": np.array([[0], [2**32]])}, ValueError, "got 4294967296"),
        (
            {"indices": int32([[0, 1, 0], [0, 1, 2]])},
            ValueError,
            re.escape("indices: expected each block at most once in a list, got 0 (batch 0, head 0, q block 0)"),
        ),
        ({"indices": int32([[0, 1], [2, 2]])}, ValueError, r"at most once in a list, got 2 \(.* q block 1\)"),
        (
            {"counts": int32([[1, 1]])},
            ValueError,
            re.escape("counts: expected the shape of indices but its last, (2,)"),
        ),
        ({"counts": np.array([1.0, 1.0])}, TypeError, "counts: expected an integer dtype, got float64"),
        (
            {"counts": int32([1, 3])},
            ValueError,
            re.escape("counts: expected counts from 0 to 2, got 3 (batch 0, head 0, q block 1)"),
        ),
        ({"counts": int32([-1, 1])}, ValueError, "counts: expected counts from 0 to 2, got -1"),
        ({"counts": torch.tensor([1, 1])}, TypeError, "counts: expected a numpy array as indices is, got a torch"),
        ({"bitmaps": BITMAPS}, ValueError, "bitmap_indices: expected bitmaps and bitmap_indices together"),
        ({"bitmap_indices": int32([[0, 0], [0, 0]])}, ValueError, "bitmaps: expected bitmaps and bitmap_indices"),
        (
            {"bitmaps": BITMAPS, "bitmap_indices": int32([0, 0])},
            ValueError,
            re.escape("bitmap_indices: expected the shape of indices, (2, 2), got shape (2,)"),
        ),
        (
            {"bitmaps": BITMAPS, "bitmap_indices": int32([[0, 0], [2, 0]])},
            ValueError,
            re.escape("bitmap_indices: expected -1 (full) or bitmap numbers from 0 to 1, got 2 (batch 0, head 0, q "),
        ),
        ({"bitmaps": BITMAPS, "bitmap_indices": int32([[0, 0], [-2, 0]])}, ValueError, "got -2"),
        (
            {"bitmaps": np.zeros((2, 16, 2), np.int32), "bitmap_indices": int32([[0, 0], [0, 0]])},
            ValueError,
            re.escape("bitmaps: expected shape (num_bitmaps, 16, 1), that is (.., q_block, ceil(kv_block / 32)), got"),
        ),
        (
            {"bitmaps": BITMAPS.astype(np.int64), "bitmap_indices": int32([[0, 0], [0, 0]])},
            TypeError,
            "bitmaps: expected int32 or uint32, got int64",
        ),
        ({"q_block": 0}, ValueError, "q_block: expected at least 1"),
    ],
)
def test_from_indices_refuses(arguments, error, message):
    arguments = {"indices": int32([[0, 1], [2, 0]]), **SIZES, **arguments}
    with pytest.raises(error, match=message):
        BlockMask.from_indices(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"offsets": np.array([0, 1])},
            ValueError,
            r"offsets: expected num_batches .* \+ 1 entries, \(3,\), got .*\(2,\)",
        ),
        ({"num_heads": 2}, ValueError, r"entries, \(5,\)"),
        ({"num_heads": 0}, ValueError, "num_heads: expected at least 1, got 0"),
        ({"num_batches": 1.5}, TypeError, "num_batches: expected an integer, got float"),
        ({"indices": int32([[0, 1]])}, ValueError, re.escape("indices: expected one axis, got shape (1, 2)")),
        ({"offsets": np.array([0, 1, 4])}, ValueError, "offsets: expected offsets from 0 to 3, .* got 4"),
        ({"offsets": np.array([-1, 1, 3])}, ValueError, "offsets: expected offsets from 0 to 3, .* got -1"),
        (
            {"offsets": np.array([0, 2, 1])},
            ValueError,
            r"offsets: expected offsets that do not decrease, got 2 followed by 1 \(.* q block 1\)",
        ),
        ({"indices": int32([2, 0, 5])}, ValueError, "got 5 .*q block 1"),
        ({"indices": int32([2, 1, 1])}, ValueError, "each block at most once in a list, got 1 .*q block 1"),
        ({"offsets": np.array([0.0, 1.0, 3.0])}, TypeError, "offsets: expected an integer dtype, got float64"),
    ],
)
def test_from_csr_refuses(arguments, error, message):
    arguments = {"offsets": np.array([0, 1, 3]), "indices": int32([2, 0, 1]), **SIZES, **arguments}
    with pytest.raises(error, match=message):
        BlockMask.from_csr(**arguments)


def test_arrays_on_different_devices_are_refused():
    indices, counts = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match="counts: expected an array on cpu as indices is, got one on meta"):
        BlockMask.from_indices(indices, counts, **SIZES, check=False)


def test_lists_may_have_room_to_spare():
    mask = BlockMask.from_csr(np.array([1, 2, 3]), int32([77, 2, 0, -5]), **SIZES)
    assert mask.to_dense()[0, 0, ::16, ::16].astype(int).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_unchecked_lists_are_not_read(monkeypatch):
    def read(self, array):
        raise AssertionError("the lists were read")

    monkeypatch.setattr(frameworks.Torch, "to_numpy", read)
    garbage = torch.full((2, 3), 10**6, dtype=torch.int32)
    BlockMask.from_indices(garbage, garbage[:, 0], **SIZES, check=False)
    BlockMask.from_csr(garbage.reshape(-1)[:3], garbage.reshape(-1), **SIZES, check=False)
    with pytest.raises(AssertionError, match="were read"):
        BlockMask.from_indices(garbage, **SIZES)
    with pytest.raises(ValueError, match="indices: expected shape"):
        BlockMask.from_indices(garbage[:1], **SIZES, check=False)
    with pytest.raises(TypeError, match="indices: expected an integer"):
        BlockMask.from_indices(garbage.float(), **SIZES, check=False)


def test_unchecked_garbage_counts_as_absent():
    indices = int32([[2, -1, 3, 0], [1, 2**31 - 1, 0, 0]])
    bitmap_indices = int32([[-1, -1, -1, 7], [0, 0, -9, -1]])
    mask = BlockMask.from_indices(
        indices,
        int32([99, 3]),
        bitmaps=np.full((1, 16, 1), 0xFFFFFFFF, np.uint32),
        bitmap_indices=bitmap_indices,
        **SIZES,
        check=False,
    )
    assert mask.to_dense()[0, 0, ::16, ::16].astype(int).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert mask.num_pairs == 512
    assert "2 of 6 blocks" in repr(mask)


# The rest


def test_repr():
    assert repr(BlockMask.causal(4096, 4096)) == (
        "BlockMask(q 4096 x kv 4096, blocks 128x128, heads 1, 528 of 1024 blocks (51.6%), 32 partial)"
    )
    mask = BlockMask.from_dense(np.ones((2, 3, 8, 8), bool), q_block=8, kv_block=4)
    assert repr(mask) == "BlockMask(q 8 x kv 8, blocks 8x4, batches 2, heads 3, 12 of 12 blocks (100.0%), 0 partial)"


def test_to_moves_every_array():
    mask = BlockMask.causal(40, 40, q_block=16, kv_block=16)
    moved = mask.to(torch.empty(0))
    for name in ("indices", "offsets", "bitmap_indices", "bitmaps"):
        array = getattr(moved, name)
        assert isinstance(array, torch.Tensor)
        np.testing.assert_array_equal(array.numpy(), getattr(mask, name))
    assert moved.counts is None
    check_built(moved, windowed(40, 40, None, 0))
    assert moved.to("cpu").indices is moved.indices
    assert moved.to(torch.device("cpu")).device == "cpu"
    assert isinstance(moved.to(np.empty(0)).indices, np.ndarray)
    assert mask.to("cpu").indices is mask.indices
    with pytest.raises(ValueError, match="cannot live on 'cuda:0', pass an array that does"):
        mask.to("cuda:0")


def test_view_passes_the_arrays_once(monkeypatch):
    calls = []
    core = SimpleNamespace(BlockMaskView=lambda **arguments: calls.append(arguments) or object())
    monkeypatch.setattr(sparsek, "_core", core, raising=False)
    mask = BlockMask.causal(40, 50, q_block=16, kv_block=8)
    assert mask._view() is mask._view()
    (arguments,) = calls
    assert arguments["indices"] is mask.indices
    assert arguments["offsets"] is mask.offsets
    assert arguments["bitmaps"] is mask.bitmaps
    assert arguments["bitmap_indices"] is mask.bitmap_indices
    assert arguments["counts"] is None
    sizes = ("q_len", "kv_len", "q_block", "kv_block", "num_batches", "num_heads")
    assert [arguments[name] for name in sizes] == [40, 50, 16, 8, 1, 1]


def test_text():
    mask = BlockMask.causal(64, 64, q_block=16, kv_block=16)
    assert mask.to_text().splitlines() == ["▒▒······", "██▒▒····", "████▒▒··", "██████▒▒"]
    half = mask.to_text(width=4).splitlines()
    assert half == ["▒▒··", "██▒▒"]
    assert BlockMask.causal(0, 0).to_text() == ""
    long = BlockMask.sliding_window(100_000, 1000, (10, 0)).to_text(width=20).splitlines()
    assert len(long) <= 20


def test_text_of_a_head():
    dense = np.zeros((2, 3, 16, 16), bool)
    dense[1, 2] = True
    mask = BlockMask.from_dense(dense, q_block=16, kv_block=16)
    assert mask.to_text(batch=1, head=2) == "██"
    assert mask.to_text(batch=0, head=2) == "··"
    with pytest.raises(ValueError, match="batch: expected 0 to 1, got 2"):
        mask.to_text(batch=2)
    with pytest.raises(ValueError, match="head: expected 0 to 2, got -1"):
        mask.to_text(head=-1)
    with pytest.raises(ValueError, match="width: expected at least 2 characters, got 1"):
        mask.to_text(width=1)


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mask = BlockMask.causal(64, 128, q_block=16, kv_block=16)
    ax = mask.plot()
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image, mask.to_dense()[0, 0].reshape(4, 16, 8, 16).mean((1, 3)))
    assert mask.plot(ax) is ax
    with pytest.raises(ValueError, match="head: expected 0 to 0, got 1"):
        mask.plot(head=1)
    plt.close("all")


def test_plot_names_the_extra(monkeypatch):
    imported = builtins.__import__

    def without_matplotlib(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=re.escape("pip install 'sparsek[plot]'")):
        BlockMask.causal(8, 8).plot()


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    dense = np.random.default_rng(0).random((2, 40, 50)) < 0.2
    dense[0, :16] = False
    mask = BlockMask.from_dense(jax.numpy.asarray(dense), q_block=16, kv_block=8)
    assert isinstance(mask.indices, jax.Array)
    check_built(mask, dense)
    check_built(mask.to(np.empty(0)).to(mask.indices), dense)
    check_built(mask & mask.to(torch.empty(0)), dense)
    built = BlockMask.from_mask_mod(
        lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, q_len=40, kv_len=40, q_block=16, kv_block=8, like=mask.indices
    )
    check_built(built, windowed(40, 40, None, 0))
    offsets, indices = jax.numpy.asarray([0, 1, 3]), jax.numpy.asarray([2, 0, 1], "uint8")
    mask = BlockMask.from_csr(offsets, indices, **SIZES)
    assert (mask.offsets.dtype, mask.indices.dtype) == (np.int64, np.int32)
    bitmaps = jax.numpy.full((1, 16, 1), 0xFFFF, "uint32")
    mask = BlockMask.from_indices(
        mask.indices.reshape(1, 3)[:, :2].repeat(2, 0),
        bitmaps=bitmaps,
        bitmap_indices=jax.numpy.zeros((2, 2), int),
        **SIZES,
    )
    assert mask.num_pairs == 4 * 256


@pytest.mark.gpu
def test_lists_on_a_gpu():
    rng = np.random.default_rng(0)
    dense = random_dense(rng, (2, 3, 150, 200), 32, 64)
    mask = BlockMask.from_dense(torch.as_tensor(dense, device="cuda"), q_block=32, kv_block=64)
    assert mask.device == "cuda:0"
    assert repr(mask).endswith("cuda:0)")
    check_built(mask.to("cpu"), dense)
    assert mask.to("cpu").to(mask.indices).device == "cuda:0"
    causal = BlockMask.causal(150, 200, q_block=32, kv_block=64)
    assert (mask & causal).device == "cuda:0"
    check_built((mask & causal).to("cpu"), dense & windowed(150, 200, None, 0))

    table = torch.as_tensor(dense, device="cuda")
    built = BlockMask.from_mask_mod(
        lambda b, h, q_idx, kv_idx: table[b, h, q_idx, kv_idx],
        batch=2,
        heads=3,
        q_len=150,
        kv_len=200,
        q_block=32,
        kv_block=64,
        like=table,
    )
    check_built(built.to("cpu"), dense)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_lists_chosen_on_a_gpu_do_not_synchronise():
    indices = torch.tensor([[0, 1], [2, 0]], dtype=torch.int32, device="cuda")
    counts = torch.tensor([1, 2], dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        mask = BlockMask.from_indices(indices, counts, **SIZES, check=False)
        converted = BlockMask.from_indices(indices.long(), counts.long(), **SIZES, check=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mask.indices.data_ptr() == indices.data_ptr()
    assert mask.num_pairs == converted.num_pairs == 3 * 256
    counts[0] = 2
    assert mask.num_pairs == 4 * 256


@pytest.mark.gpu
def test_from_flex_on_a_gpu():
    documents = document_of_token.cuda()

    def mask_mod(b, h, q_idx, kv_idx):
        return (documents[q_idx] == documents[kv_idx]) & (q_idx >= kv_idx)

    flex = create_block_mask(mask_mod, None, None, 150, 150, device="cuda", BLOCK_SIZE=(32, 32))
    mask = BlockMask.from_flex(flex)
    assert mask.device == "cuda:0"
    check_built(mask.to("cpu"), create_mask(mask_mod, 1, 1, 150, 150, device="cuda").cpu().numpy())
