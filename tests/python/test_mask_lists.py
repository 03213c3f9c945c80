"""Lists that a caller gives: read where they are, checked, and refused with reasons."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mask_helpers import SIZES, blocks, check_built, decode, lengths, seeds, thorough

from sparsek import BlockMask, frameworks

# Lists that a caller gives


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
