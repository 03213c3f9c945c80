"""Dense formulas and random masks for the tests of BlockMask."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

lengths = st.integers(0, 70)
blocks = st.integers(1, 40)
sides = st.none() | st.integers(0, 80)
seeds = st.integers(0, 2**32 - 1)
thorough = settings(max_examples=150, deadline=None)

SIZES = {"q_len": 32, "kv_len": 48, "q_block": 16, "kv_block": 16}
document_of_token = torch.cumsum(torch.arange(150) % 37 == 36, 0)


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
