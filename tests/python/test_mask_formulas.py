"""Masks from a formula, against dense formulas that know nothing of blocks."""

from __future__ import annotations

import re
import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mask_helpers import blocks, check_built, lengths, seeds, sides, thorough, windowed

from sparsek import BlockMask

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
