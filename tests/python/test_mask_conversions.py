"""Masks from dense arrays, functions and PyTorch's BlockMask."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mask_helpers import blocks, check_built, document_of_token, lengths, random_dense, seeds, thorough, windowed
from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, noop_mask

from sparsek import BlockMask

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
