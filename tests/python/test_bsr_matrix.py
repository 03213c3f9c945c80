"""BSRMatrix against dense arrays."""

from __future__ import annotations

import gc
import re
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bsr_matrices import decode, example, random_dense
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsek
from sparsek import BSRMatrix, prune

counts = st.integers(0, 6)
blocks = st.integers(1, 9)
seeds = st.integers(0, 2**32 - 1)
thorough = settings(max_examples=150, deadline=None)


# From and to dense


@thorough
@given(counts, counts, blocks, blocks, st.sampled_from(["float16", "float32"]), st.booleans(), seeds)
def test_from_dense(rows, cols, block_rows, block_cols, dtype, as_torch, seed):
    dense = random_dense(np.random.default_rng(seed), rows, cols, block_rows, block_cols, dtype)
    given_dense = torch.as_tensor(dense) if as_torch else dense
    matrix = BSRMatrix.from_dense(given_dense, (block_rows, block_cols))
    filled = dense.reshape(rows, block_rows, cols, block_cols).any(axis=(1, 3))
    assert matrix.nnz == filled.sum()
    assert matrix.density == filled.sum() / max(1, filled.size)
    assert matrix.dtype == dtype
    assert matrix.shape == dense.shape
    assert matrix.block_shape == (block_rows, block_cols)
    np.testing.assert_array_equal(decode(matrix), dense)
    for converted, expected in ((matrix, dense), (matrix.T, dense.T)):
        back = converted.to_dense()
        assert isinstance(back, torch.Tensor if as_torch else np.ndarray)
        np.testing.assert_array_equal(np.asarray(back), expected)


def test_from_dense_bfloat16():
    dense = torch.randn(6, 8).bfloat16()
    dense[:3, :4] = 0
    matrix = BSRMatrix.from_dense(dense, (3, 4))
    assert (matrix.nnz, matrix.dtype) == (3, "bfloat16")
    assert matrix.values.dtype == torch.bfloat16
    assert torch.equal(matrix.to_dense(), dense)
    assert torch.equal(matrix.T.to_dense(), dense.T)


def test_from_dense_in_another_memory_order():
    dense = np.asfortranarray(random_dense(np.random.default_rng(0), 3, 4, 2, 5))
    np.testing.assert_array_equal(BSRMatrix.from_dense(dense, (2, 5)).to_dense(), dense)


@pytest.mark.parametrize(("threshold", "columns"), [(0, [0, 1, 2, 3]), (0.5, [1, 2, 3]), (2, [2, 3]), (9, [2])])
def test_from_dense_threshold(threshold, columns):
    # A NaN is no small number; the threshold itself is.
    dense = np.array([[0.5, 0, -2, 1, np.nan, 0, -3, 0, -0.0, 0]], np.float32)
    matrix = BSRMatrix.from_dense(dense, (1, 2), threshold=threshold)
    assert matrix.col_indices.tolist() == columns


@pytest.mark.parametrize("build", [BSRMatrix.from_dense, lambda dense, shape: prune(dense, shape, 0.5)])
@pytest.mark.parametrize(
    ("dense", "block_shape", "error", "message"),
    [
        (np.ones((4, 4)), (2, 2), TypeError, "dense: expected float16, bfloat16 or float32, got float64"),
        (torch.ones(4, 4, dtype=torch.uint8), (2, 2), TypeError, "dense: .* got uint8"),
        ([[1.0]], (1, 1), TypeError, "dense: expected an array"),
        (
            np.ones((1, 4, 4), np.float32),
            (2, 2),
            ValueError,
            re.escape("two axes, got shape (1, 4, 4)"),
        ),
        (
            np.ones((4, 6), np.float32),
            (2, 4),
            ValueError,
            re.escape("shape: expected multiples of the block shape (2, 4), got (4, 6)"),
        ),
        (np.ones((4, 6), np.float32), (0, 2), ValueError, "block_shape: expected at least 1, got 0"),
        (np.ones((4, 6), np.float32), (2,), ValueError, re.escape("block_shape: expected two numbers, got (2,)")),
        (np.ones((4, 6), np.float32), 2, ValueError, "block_shape: expected two numbers, got 2"),
        (np.ones((4, 6), np.float32), (2.0, 2), TypeError, "block_shape: expected an integer, got float"),
        (np.ones((257, 1), np.float32), (257, 1), ValueError, "block_shape: expected 1x1 to 256x256, got 257x1"),
    ],
)
def test_from_dense_refuses(build, dense, block_shape, error, message):
    with pytest.raises(error, match=message):
        build(dense, block_shape)


@pytest.mark.parametrize("threshold", [-1, float("nan")])
def test_threshold_refused(threshold):
    with pytest.raises(ValueError, match="threshold: expected at least 0, got"):
        BSRMatrix.from_dense(np.ones((2, 2), np.float32), (1, 1), threshold=threshold)


# The arrays given


def test_numpy_arrays_are_not_copied():
    values, offsets = np.ones((3, 2, 4), np.float16), np.array([0, 1, 3])
    cols = np.array([2, 0, 1], np.int32)
    matrix = BSRMatrix(values, offsets, cols, (4, 12))
    assert matrix.values is values
    assert np.shares_memory(matrix.row_offsets, offsets)
    assert np.shares_memory(matrix.col_indices, cols)
    assert matrix.device == "cpu"
    values[0] = 7
    assert (matrix.to_dense()[:2, 8:] == 7).all()


def test_tensors_are_not_copied():
    # Values of any strides, as a transpose of each block has.
    values = torch.randn(3, 4, 2).swapaxes(1, 2)
    offsets, cols = torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1], dtype=torch.int32)
    matrix = BSRMatrix(values, offsets, cols, (4, 12))
    assert matrix.values is values
    assert matrix.row_offsets.data_ptr() == offsets.data_ptr()
    assert matrix.col_indices.data_ptr() == cols.data_ptr()
    assert matrix.block_shape == (2, 4)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_structure_of_other_integers_is_converted(dtype):
    values = np.ones((2, 1, 1), np.float32)
    matrix = BSRMatrix(values, np.array([0, 1, 2], dtype), np.array([1, 0], dtype), (2, 2))
    np.testing.assert_array_equal(decode(matrix), [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"values": np.ones((3, 3, 2))}, TypeError, "values: expected float16, bfloat16 or float32, got float64"),
        ({"values": np.ones((3, 3, 2), np.uint8)}, TypeError, "values: .* got uint8"),
        (
            {"values": np.ones((3, 6), np.float32)},
            ValueError,
            r"values: expected shape \(nnz, bm, bk\), got",
        ),
        ({"values": [1.0]}, TypeError, "values: expected an array"),
        ({"values": np.ones((3, 300, 2), np.float32)}, ValueError, "block_shape: .* got 300x2"),
        ({"shape": (7, 8)}, ValueError, re.escape("shape: expected multiples of the block shape (3, 2), got (7, 8)")),
        ({"shape": (6,)}, ValueError, re.escape("shape: expected two numbers, got (6,)")),
        ({"shape": (-6, 8)}, ValueError, "shape: expected at least 0, got -6"),
        ({"shape": (6.0, 8)}, TypeError, "shape: expected an integer, got float"),
        ({"row_offsets": np.array([0, 3])}, ValueError, re.escape("row_offsets: expected shape (3,), got (2,)")),
        ({"row_offsets": np.array([0.0, 2, 3])}, TypeError, "row_offsets: expected an integer dtype, got float64"),
        ({"row_offsets": [0, 2, 3]}, TypeError, "row_offsets: expected an array"),
        ({"row_offsets": np.array([1, 2, 3])}, ValueError, "the first to be 0 and the last to be nnz = 3, got 1 and 3"),
        ({"row_offsets": np.array([0, 2, 4])}, ValueError, "got 0 and 4"),
        (
            {"row_offsets": np.array([0, 4, 3])},
            ValueError,
            re.escape("offsets that do not decrease, got 4 followed by 3 (block row 1)"),
        ),
        ({"col_indices": np.array([0, 1])}, ValueError, re.escape("col_indices: expected shape (3,), got (2,)")),
        (
            {"col_indices": np.array([0, 1, 4])},
            ValueError,
            re.escape("col_indices: expected columns from 0 to 3, got 4 (block row 1)"),
        ),
        ({"col_indices": np.array([0, -1, 3])}, ValueError, "expected columns from 0 to 3, got -1"),
        ({"col_indices": np.array([0, 2**32, 3])}, ValueError, "got 4294967296"),
        (
            {"col_indices": np.array([3, 3, 0])},
            ValueError,
            re.escape("col_indices: expected each block at most once in a row, got 3 twice (block row 0)"),
        ),
        (
            {"values": torch.ones(3, 3, 2), "row_offsets": torch.zeros(3, dtype=torch.int64, device="meta")},
            ValueError,
            "row_offsets: expected an array on cpu as the values are, got one on meta",
        ),
    ],
)
def test_refuses(arguments, error, message):
    given_arrays = example()
    arguments = {
        "values": given_arrays.values,
        "row_offsets": given_arrays.row_offsets,
        "col_indices": given_arrays.col_indices,
        "shape": (6, 8),
        **arguments,
    }
    with pytest.raises(error, match=message):
        BSRMatrix(**arguments)


def test_too_many_blocks_are_refused():
    values = np.broadcast_to(np.float32(0), (2**31, 1, 1))
    with pytest.raises(ValueError, match=re.escape("values: expected fewer than 2^31 blocks, got 2147483648")):
        BSRMatrix(values, np.zeros(2, int), np.zeros(0, int), (1, 1))


def test_unchecked_structure_is_not_read():
    values, garbage = torch.ones(2, 1, 1), torch.tensor([9, 9])
    BSRMatrix(values, torch.tensor([5, 3, 1]), garbage, (2, 2), check=False)
    with pytest.raises(ValueError, match="row_offsets: expected shape"):
        BSRMatrix(values, garbage, garbage, (2, 2), check=False)


# The transpose


@thorough
@given(counts, counts, blocks, blocks, st.booleans(), seeds)
def test_transpose(rows, cols, block_rows, block_cols, as_torch, seed):
    dense = random_dense(np.random.default_rng(seed), rows, cols, block_rows, block_cols)
    matrix = BSRMatrix.from_dense(torch.as_tensor(dense) if as_torch else dense, (block_rows, block_cols))
    transposed = matrix.T
    assert transposed.shape == matrix.shape[::-1]
    assert transposed.block_shape == matrix.block_shape[::-1]
    assert transposed.nnz == matrix.nnz
    np.testing.assert_array_equal(decode(transposed), dense.T)
    assert transposed.T is matrix
    assert np.asarray(transposed.value_indices).dtype == np.int32


@pytest.mark.parametrize("library", [np, torch])
def test_transpose_shares_everything(library):
    matrix = example(library)
    transposed = matrix.T
    assert matrix.T is transposed
    if library is torch:
        assert transposed.values.data_ptr() == matrix.values.data_ptr()
    else:
        assert np.shares_memory(transposed.values, matrix.values)
    structure = transposed.col_indices
    del transposed
    assert matrix.T.col_indices is structure
    assert matrix.with_values(matrix.values * 2).T.col_indices is structure


def test_transpose_keeps_its_original_and_makes_no_cycle():
    gc.disable()
    try:
        matrix = example()
        transposed, original = matrix.T, weakref.ref(matrix)
        del matrix
        assert transposed.T is original()
        del transposed
        assert original() is None
        transposed = example().T.with_values(np.ones((3, 2, 3), np.float32))
        original = weakref.ref(transposed.T)
        assert transposed.T.T is transposed
        assert transposed.T is original()
        del transposed
        assert original() is None
    finally:
        gc.enable()


def test_with_values():
    matrix = example()
    values = np.random.default_rng(0).standard_normal(matrix.values.shape).astype(np.float16)
    other = matrix.with_values(values)
    assert other.values is values
    assert other.dtype == "float16"
    assert other.col_indices is matrix.col_indices
    expected = np.zeros((6, 8), np.float16)
    for row, col, value in ((0, 3, values[0]), (0, 1, values[1]), (1, 0, values[2])):
        expected[3 * row : 3 * row + 3, 2 * col : 2 * col + 2] = value
    np.testing.assert_array_equal(other.to_dense(), expected)

    # In a transpose the values are laid out as its own are; what is written there later shows everywhere.
    values = np.zeros((3, 2, 3), np.float16)
    transposed = matrix.T.with_values(values)
    assert transposed.values is values
    values[:] = other.values.swapaxes(1, 2)
    np.testing.assert_array_equal(transposed.to_dense(), expected.T)
    np.testing.assert_array_equal(transposed.T.to_dense(), expected)
    np.testing.assert_array_equal(decode(transposed), expected.T)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.ones((3, 2, 3), np.float32), ValueError, re.escape("values: expected shape (3, 3, 2), got (3, 2, 3)")),
        (np.ones((3, 3, 2)), TypeError, "values: expected float16, bfloat16 or float32, got float64"),
        (torch.ones(3, 3, 2, device="meta"), ValueError, "values: expected an array on cpu .* got one on meta"),
    ],
)
def test_with_values_refuses(values, error, message):
    with pytest.raises(error, match=message):
        example().with_values(values)


# The rest


@thorough
@given(st.integers(1, 6), st.integers(1, 6), blocks, blocks, st.floats(0, 1), st.booleans(), seeds)
def test_prune(rows, cols, block_rows, block_cols, density, as_torch, seed):
    dense = random_dense(np.random.default_rng(seed), rows, cols, block_rows, block_cols)
    matrix = prune(torch.as_tensor(dense) if as_torch else dense, (block_rows, block_cols), density)
    assert matrix.nnz == round(density * rows * cols)
    tiled = dense.reshape(rows, block_rows, cols, block_cols)
    norms = np.sqrt((tiled.astype(np.float64) ** 2).sum((1, 3))).reshape(-1)
    kept = np.zeros(rows * cols, bool)
    block_of_row = np.repeat(np.arange(rows), np.diff(np.asarray(matrix.row_offsets)))
    kept[block_of_row * cols + np.asarray(matrix.col_indices)] = True
    if kept.any() and not kept.all():
        assert norms[kept].min() >= norms[~kept].max() * (1 - 1e-6)
    expected = np.where(kept.reshape(rows, 1, cols, 1), tiled, 0).reshape(dense.shape)
    np.testing.assert_array_equal(np.asarray(matrix.to_dense()), expected)


def test_prune_keeps_large_halves_and_nan():
    # Squares of these overflow float16.
    dense = np.array([[300, 400, 60000, 1, np.nan]], np.float16)
    assert prune(dense, (1, 1), 0.4).col_indices.tolist() == [2, 4]
    assert prune(np.ones((1, 4), np.float32), (1, 1), 0.5).col_indices.tolist() == [0, 1]


@pytest.mark.parametrize("density", [-0.1, 1.1, float("nan")])
def test_prune_refuses(density):
    with pytest.raises(ValueError, match="density: expected 0 to 1, got"):
        prune(np.ones((2, 2), np.float32), (1, 1), density)


def test_repr():
    assert repr(example()) == "BSRMatrix(6 x 8, blocks 3x2, 3 of 8 blocks (37.5%), float32, cpu)"
    assert repr(example(torch).T) == "BSRMatrix(8 x 6, blocks 2x3, 3 of 8 blocks (37.5%), float32, cpu)"


@pytest.mark.parametrize("library", [np, torch])
def test_view_passes_the_arrays_once(monkeypatch, library):
    calls = []
    core = SimpleNamespace(BsrMatrixView=lambda **arguments: calls.append(arguments) or object())
    monkeypatch.setattr(sparsek, "_core", core, raising=False)
    matrix = example(library)
    assert matrix._view() is matrix._view()
    (arguments,) = calls
    assert (arguments["rows"], arguments["cols"]) == (6, 8)
    assert arguments["values"] is matrix.values
    assert arguments["row_offsets"] is matrix.row_offsets
    assert arguments["col_indices"] is matrix.col_indices
    assert arguments["value_indices"] is None

    # The transpose's view outlives the transpose.
    assert matrix.T._view() is matrix.T._view()
    assert len(calls) == 2
    arguments = calls[1]
    assert (arguments["rows"], arguments["cols"]) == (8, 6)
    assert tuple(arguments["values"].shape) == (3, 2, 3)
    assert np.shares_memory(np.asarray(arguments["values"]), np.asarray(matrix.values))
    assert np.asarray(arguments["value_indices"]).tolist() == [2, 1, 0]

    other = matrix.values * 2
    assert matrix._view(other) is not matrix._view(other)
    assert calls[-1]["values"] is other
    assert len(calls) == 4
