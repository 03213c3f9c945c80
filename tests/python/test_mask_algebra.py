"""and, or, transpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mask_helpers import blocks, check_built, lengths, random_dense, seeds, thorough, windowed

from sparsek import BlockMask

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
