"""Small block-sparse matrices for tests, and what their arrays say."""

from __future__ import annotations

import numpy as np
import torch

from sparsek import BSRMatrix


def random_dense(rng, rows, cols, block_rows, block_cols, dtype=np.float32):
    """(rows, cols) blocks, each all zeros, or random with some zeros."""
    dense = rng.standard_normal((rows, block_rows, cols, block_cols))
    dense *= rng.random(dense.shape) < 0.8
    dense *= (rng.random((rows, cols)) < rng.random())[:, None, :, None]
    return dense.reshape(rows * block_rows, cols * block_cols).astype(dtype)


def decode(matrix):
    """What the arrays say, entry by entry, as include/sparsek/bsr_matrix.h has it."""
    offsets, cols, values = (np.asarray(a) for a in (matrix.row_offsets, matrix.col_indices, matrix.values))
    block_rows, block_cols = matrix.block_shape
    assert values.shape == (matrix.nnz, block_rows, block_cols)
    assert (offsets.dtype, cols.dtype) == (np.int64, np.int32)
    dense = np.zeros(matrix.shape, values.dtype)
    for row in range(matrix.shape[0] // block_rows):
        for entry in range(offsets[row], offsets[row + 1]):
            at = entry if matrix.value_indices is None else int(matrix.value_indices[entry])
            first, left = row * block_rows, cols[entry] * block_cols
            dense[first : first + block_rows, left : left + block_cols] = values[at]
    return dense


def example(library=np, dtype=np.float32):
    """A 6 x 8 matrix of three 3x2 blocks, its columns not in order."""
    values = np.arange(1, 19, dtype=dtype).reshape(3, 3, 2)
    arrays = values, np.array([0, 2, 3]), np.array([3, 1, 0], np.int32)
    if library is torch:
        arrays = tuple(torch.as_tensor(array) for array in arrays)
    return BSRMatrix(*arrays, (6, 8))
