"""Where the blocks of a block-sparse matrix lie: shapes, checks and the transpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from . import frameworks
from ._arguments import integer
from ._csr import offsets_of

Array = Any

_MAX_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Structure:
    """Shared by matrices that differ in their values only."""

    shape: tuple[int, int]
    block_shape: tuple[int, int]
    row_offsets: Array  # int64 (block rows + 1)
    col_indices: Array  # int32 (nnz)
    value_indices: Array | None = None  # int32 (nnz): which block of values each entry has; None: in order
    plans: dict[bool, Any] = field(default_factory=dict)  # of BSRMatrix._plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "plans": {}}

    @property
    def num_block_rows(self) -> int:
        return self.shape[0] // self.block_shape[0]

    @property
    def num_block_cols(self) -> int:
        return self.shape[1] // self.block_shape[1]

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 block row and block column of every entry, in host memory."""
        offsets, cols = to_host(self.row_offsets), to_host(self.col_indices)
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets.astype(np.int64)))
        return rows, cols.astype(np.int64)

    @cached_property
    def transposed(self) -> Structure:
        """The structure of the transpose; its entries point at this one's values."""
        rows, cols = self.coordinates()
        order = np.lexsort((rows, cols))
        offsets = offsets_of(cols, self.num_block_cols)
        arrays = (offsets, rows[order].astype(np.int32), order.astype(np.int32))
        like = self.row_offsets
        arrays = (frameworks.of(like).from_numpy(array, like) for array in arrays)
        return Structure(self.shape[::-1], self.block_shape[::-1], *arrays)

    def moved(self, target: Any) -> Structure:
        """On the device of `target`, as `frameworks.move` takes it."""
        arrays = (frameworks.move(array, target) for array in (self.row_offsets, self.col_indices))
        return Structure(self.shape, self.block_shape, *arrays)


def to_host(array: Array) -> np.ndarray:
    return frameworks.of(array).to_numpy(array)


def make_structure(
    shape: Any, block_shape: tuple[int, int], row_offsets: Array, col_indices: Array, values: Array, check: bool
) -> Structure:
    """The structure that a caller gave for `values`; with `check` its lists are read."""
    shape, block_shape = check_shape(shape, block_shape)
    offsets_library, row_offsets = frameworks.native(row_offsets, "row_offsets")
    cols_library, col_indices = frameworks.native(col_indices, "col_indices")
    _check_integers("row_offsets", row_offsets, shape[0] // block_shape[0] + 1, values)
    _check_integers("col_indices", col_indices, len(values), values)
    if check:
        _check_lists(Structure(shape, block_shape, row_offsets, col_indices))
    row_offsets = offsets_library.contiguous(row_offsets, "int64")
    return Structure(shape, block_shape, row_offsets, cols_library.contiguous(col_indices, "int32"))


def check_shape(shape: Any, block_shape: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rows, cols) and (bm, bk); raises TypeError or ValueError for others than multiples of blocks up to 256."""
    for name, pair in (("block_shape", block_shape), ("shape", shape)):
        if not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"{name}: expected two numbers, got {pair!r}")
    block_rows, block_cols = (integer("block_shape", size) for size in block_shape)
    rows, cols = (integer("shape", size, 0) for size in shape)
    if max(block_rows, block_cols) > _MAX_BLOCK:
        raise ValueError(f"block_shape: expected 1x1 to {_MAX_BLOCK}x{_MAX_BLOCK}, got {block_rows}x{block_cols}")
    if rows % block_rows or cols % block_cols:
        raise ValueError(f"shape: expected multiples of the block shape {(block_rows, block_cols)}, got {(rows, cols)}")
    return (rows, cols), (block_rows, block_cols)


def check_device(name: str, array: Array, values: Array) -> None:
    """Raises ValueError where the array is not on the device of the values."""
    device, expected = (frameworks.of(each).device(each) for each in (array, values))
    if device != expected:
        raise ValueError(f"{name}: expected an array on {expected} as the values are, got one on {device}")


def _check_integers(name: str, array: Array, count: int, values: Array) -> None:
    dtype = frameworks.of(array).dtype(array)
    if not dtype.lstrip("u").startswith("int"):
        raise TypeError(f"{name}: expected an integer dtype, got {dtype}")
    if tuple(array.shape) != (count,):
        raise ValueError(f"{name}: expected shape {(count,)}, got {tuple(array.shape)}")
    check_device(name, array, values)


def _check_lists(structure: Structure) -> None:
    """Raises ValueError for offsets or columns out of range, and for a block listed twice."""
    offsets = to_host(structure.row_offsets).astype(np.int64)
    nnz = structure.col_indices.shape[0]
    if offsets[0] != 0 or offsets[-1] != nnz:
        raise ValueError(
            f"row_offsets: expected the first to be 0 and the last to be nnz = {nnz}, "
            f"got {offsets[0]} and {offsets[-1]}"
        )
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if len(falls):
        row = falls[0]
        raise ValueError(
            f"row_offsets: expected offsets that do not decrease, got {offsets[row]} followed by "
            f"{offsets[row + 1]} (block row {row})"
        )
    rows, cols = structure.coordinates()
    last = structure.num_block_cols - 1
    bad = (cols < 0) | (cols > last)
    if bad.any():
        at = np.argmax(bad)
        raise ValueError(f"col_indices: expected columns from 0 to {last}, got {cols[at]} (block row {rows[at]})")
    keys = rows * structure.num_block_cols + cols
    if (keys[1:] > keys[:-1]).all():
        return  # every row ascends, so that nothing is there twice
    keys.sort()
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        row, col = divmod(int(twice[0]), structure.num_block_cols)
        raise ValueError(f"col_indices: expected each block at most once in a row, got {col} twice (block row {row})")
