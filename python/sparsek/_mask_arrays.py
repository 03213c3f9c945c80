"""The arrays that a mask hands to the kernels: their checks, and the way to and from host lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from . import frameworks
from ._csr import ranges
from ._mask_lists import Grid, Lists, sort

Array = Any

_INTEGERS = {f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)}
_DTYPES = {"offsets": "int64"}  # the others are int32


@dataclass(frozen=True)
class Arrays:
    """Arrays of one library on one device; compressed lists have `offsets`, padded ones `counts`."""

    indices: Array
    offsets: Array | None = None
    counts: Array | None = None
    bitmap_indices: Array | None = None
    bitmaps: Array | None = None

    def given(self) -> dict[str, Array]:
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}

    def map(self, function: Callable[[Array], Array]) -> Arrays:
        return Arrays(**{name: function(array) for name, array in self.given().items()})


def resolve(grid: Grid, arrays: Arrays) -> Arrays:
    """Checks libraries, devices, dtypes and the bitmaps' shapes: all that needs no list read."""
    first, indices = frameworks.native(arrays.indices, "indices")
    device = first.device(indices)
    natives = {}
    for name, array in arrays.given().items():
        framework, natives[name] = frameworks.native(array, name)
        if framework is not first:
            raise TypeError(f"{name}: expected a {first.name} array as indices is, got a {framework.name} array")
        if framework.device(natives[name]) != device:
            raise ValueError(
                f"{name}: expected an array on {device} as indices is, got one on {framework.device(natives[name])}"
            )
        allowed = {"int32", "uint32"} if name == "bitmaps" else _INTEGERS
        if framework.dtype(natives[name]) not in allowed:
            what = "int32 or uint32" if name == "bitmaps" else "an integer dtype"
            raise TypeError(f"{name}: expected {what}, got {framework.dtype(natives[name])}")
    arrays = Arrays(**natives)

    if (arrays.bitmaps is None) != (arrays.bitmap_indices is None):
        missing = "bitmaps" if arrays.bitmaps is None else "bitmap_indices"
        raise ValueError(f"{missing}: expected bitmaps and bitmap_indices together, got None")
    if arrays.bitmaps is not None:
        _check_shape("bitmap_indices", arrays.bitmap_indices, "the shape of indices", indices.shape)
        shape = tuple(arrays.bitmaps.shape)
        if len(shape) != 3 or shape[1:] != grid.bitmap_shape:
            q_block, words = grid.bitmap_shape
            raise ValueError(
                f"bitmaps: expected shape (num_bitmaps, {q_block}, {words}), that is "
                f"(.., q_block, ceil(kv_block / 32)), got {shape}"
            )
    return arrays


def _check_shape(name: str, array: Array, what: str, shape: tuple[int, ...]) -> None:
    if tuple(array.shape) != tuple(shape):
        raise ValueError(f"{name}: expected {what}, {tuple(shape)}, got shape {tuple(array.shape)}")


def padded_shape(grid: Grid, indices: Array) -> tuple[int, int, int, int]:
    """(batches, heads, nq, max_count) of padded indices of two to four axes."""
    shape = tuple(indices.shape)
    nq = grid.num_q_blocks
    if not 2 <= len(shape) <= 4 or shape[-2] != nq or 0 in shape[:-2]:
        raise ValueError(
            "indices: expected shape (nq, max_count), (heads, nq, max_count) or "
            "(batches, heads, nq, max_count) with nq = ceil(q_len / q_block) = "
            f"{nq}, got {shape}"
        )
    return (1,) * (4 - len(shape)) + shape


def as_padded(grid: Grid, arrays: Arrays) -> tuple[int, int, Arrays]:
    """Batches, heads and the arrays with all their axes; counts are made where none were given."""
    shape = padded_shape(grid, arrays.indices)
    if arrays.counts is None:
        framework = frameworks.of(arrays.indices)
        counts = framework.full(shape[:3], shape[3], arrays.indices)
    else:
        _check_shape("counts", arrays.counts, "the shape of indices but its last", arrays.indices.shape[:-1])
        counts = arrays.counts.reshape(shape[:3])
    bitmap_indices = arrays.bitmap_indices
    if bitmap_indices is not None:
        bitmap_indices = bitmap_indices.reshape(shape)
    arrays = replace(
        arrays,
        indices=arrays.indices.reshape(shape),
        counts=counts,
        bitmap_indices=bitmap_indices,
    )
    return shape[0], shape[1], arrays


def check_compressed(grid: Grid, num_batches: int, num_heads: int, arrays: Arrays) -> None:
    """Checks the shapes of compressed lists."""
    if len(arrays.indices.shape) != 1:
        raise ValueError(f"indices: expected one axis, got shape {tuple(arrays.indices.shape)}")
    _check_shape(
        "offsets",
        arrays.offsets,
        "num_batches * num_heads * ceil(q_len / q_block) + 1 entries",
        (num_batches * num_heads * grid.num_q_blocks + 1,),
    )


def convert(arrays: Arrays) -> Arrays:
    """Contiguous arrays of the kernels' dtypes; those that are so already are not copied."""
    framework = frameworks.of(arrays.indices)
    given = arrays.given()
    if "bitmaps" in given and framework.dtype(arrays.bitmaps) != "int32":
        given["bitmaps"] = framework.reinterpret(arrays.bitmaps, "int32")
    return Arrays(**{name: framework.contiguous(array, _DTYPES.get(name, "int32")) for name, array in given.items()})


def _entries(num_lists: int, arrays: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Row, place in its list, column and bitmap number of every entry, list after list."""
    host = arrays.map(lambda array: frameworks.of(array).to_numpy(array))
    size = host.indices.size
    if host.offsets is None:
        max_count = host.indices.shape[-1]
        starts = np.arange(num_lists) * max_count
        counts = np.clip(host.counts.reshape(-1).astype(np.int64), 0, max_count)
    else:
        bounds = np.clip(host.offsets.astype(np.int64), 0, size)
        starts = bounds[:-1]
        counts = np.maximum(np.diff(bounds), 0)
    at = ranges(starts, counts)
    rows = np.repeat(np.arange(num_lists), counts)
    cols = host.indices.reshape(-1)[at].astype(np.int64)
    if host.bitmap_indices is None:
        bits = np.full(len(rows), -1, np.int64)
    else:
        bits = host.bitmap_indices.reshape(-1)[at].astype(np.int64)
    return rows, at - starts[rows], cols, bits


def read(grid: Grid, num_batches: int, num_heads: int, arrays: Arrays) -> Lists:
    """The lists in host memory; as in the kernels, what is out of range counts as absent."""
    rows, _, cols, bits = _entries(num_batches * num_heads * grid.num_q_blocks, arrays)
    bitmaps = np.empty((0, *grid.bitmap_shape), np.uint32)
    if arrays.bitmaps is not None:
        bitmaps = frameworks.of(arrays.bitmaps).to_numpy(arrays.bitmaps).view(np.uint32)
    valid = (cols >= 0) & (cols < grid.num_kv_blocks) & (bits >= -1) & (bits < len(bitmaps))
    lists = Lists(grid, num_batches, num_heads, rows, cols, bits, bitmaps)
    return sort(lists if valid.all() else lists.select(valid))


def write(lists: Lists) -> Arrays:
    """Compressed NumPy arrays."""
    partial = len(lists.bitmaps) > 0
    return Arrays(
        indices=lists.cols.astype(np.int32),
        offsets=lists.offsets(),
        bitmap_indices=lists.bits.astype(np.int32) if partial else None,
        bitmaps=lists.bitmaps.view(np.int32) if partial else None,
    )


def check_lists(grid: Grid, num_batches: int, num_heads: int, arrays: Arrays) -> None:
    """Raises ValueError for what is out of range in the lists, and for a block listed twice."""
    nq, nk = grid.num_q_blocks, grid.num_kv_blocks

    def place(row: int) -> str:
        batch_head, q_block = divmod(int(row), nq)
        batch, head = divmod(batch_head, num_heads)
        return f"batch {batch}, head {head}, q block {q_block}"

    def check(name: str, bad: np.ndarray, expected: str, values: np.ndarray, rows: Any) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(f"{name}: expected {expected}, got {int(values[first])} ({place(rows[first])})")

    to_numpy = frameworks.of(arrays.indices).to_numpy
    num_lists = num_batches * num_heads * nq
    if arrays.counts is not None:
        counts = to_numpy(arrays.counts).reshape(-1)
        max_count = arrays.indices.shape[-1]
        bad = (counts < 0) | (counts > max_count)
        check("counts", bad, f"counts from 0 to {max_count}", counts, range(num_lists))
    else:
        offsets, size = to_numpy(arrays.offsets), arrays.indices.shape[0]
        bad = (offsets < 0) | (offsets > size)
        if bad.any():
            raise ValueError(
                f"offsets: expected offsets from 0 to {size}, the length of indices, got {int(offsets[np.argmax(bad)])}"
            )
        falls = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(falls):
            raise ValueError(
                f"offsets: expected offsets that do not decrease, got {int(offsets[falls[0]])} "
                f"followed by {int(offsets[falls[0] + 1])} ({place(falls[0])})"
            )

    rows, position, cols, bits = _entries(num_lists, arrays)
    bad = (cols < 0) | (cols >= nk)
    check("indices", bad, f"block indices from 0 to {nk - 1}", cols, rows)
    num_bitmaps = 0 if arrays.bitmaps is None else len(arrays.bitmaps)
    bad = (bits < -1) | (bits >= num_bitmaps)
    expected = f"-1 (full) or bitmap numbers from 0 to {num_bitmaps - 1}"
    check("bitmap_indices", bad, expected, bits, rows)

    if np.all((cols[1:] > cols[:-1]) | (position[1:] == 0)):
        return  # every list ascends, so that nothing is there twice
    keys = np.sort(rows * nk + cols)
    twice = keys[1:] == keys[:-1]
    check("indices", twice, "each block at most once in a list", keys[1:] % nk, keys[1:] // nk)
