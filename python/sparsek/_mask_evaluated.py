"""Masks whose pairs are looked at: dense arrays and functions of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _mask_bits as bits_
from . import frameworks
from ._mask_lists import Grid, Lists

Array = Any


def from_stripes(grid: Grid, num_batches: int, num_heads: int, stripe: Callable[[int, int, slice], Array]) -> Lists:
    """`stripe(batch, head, queries)` is the bool array (queries, kv_len) of one q block.

    It stays where it is: what comes to the host is two rows of it, and the partial blocks.
    """
    starts = np.arange(grid.num_kv_blocks) * grid.kv_block
    pool = bits_.Pool()
    rows, cols, bits = [], [], []
    for row in range(num_batches * num_heads * grid.num_q_blocks):
        outer, q_block = divmod(row, grid.num_q_blocks)
        first = q_block * grid.q_block
        queries = slice(first, min(first + grid.q_block, grid.q_len))
        seen = stripe(*divmod(outer, num_heads), queries)

        to_numpy = frameworks.of(seen).to_numpy
        some = np.logical_or.reduceat(to_numpy(seen.any(0)), starts)
        full = np.logical_and.reduceat(to_numpy(seen.all(0)), starts)
        listed = np.flatnonzero(some)
        of_block = np.full(len(listed), -1, np.int64)
        is_partial = ~full[listed]
        of_block[is_partial] = pool.add(_bitmaps_of(grid, seen, listed[is_partial]))
        rows.append(np.full(len(listed), row))
        cols.append(listed)
        bits.append(of_block)
    none = np.empty(0, np.int64)
    return Lists(
        grid,
        num_batches,
        num_heads,
        *(np.concatenate([none, *parts]) for parts in (rows, cols, bits)),
        pool.rows(grid.bitmap_shape, np.uint32),
    )


def _bitmaps_of(grid: Grid, seen: Array, blocks: np.ndarray) -> np.ndarray:
    """The bitmaps of some kv blocks of a stripe."""
    framework = frameworks.of(seen)
    keys = blocks[:, None] * grid.kv_block + np.arange(grid.kv_block)
    exists = keys < grid.kv_len
    gather = np.minimum(keys, grid.kv_len - 1).reshape(-1)
    gathered = framework.to_numpy(seen[:, framework.indices(gather, seen)])
    inside = gathered.reshape(len(seen), *keys.shape).swapaxes(0, 1) & exists[:, None]
    missing = grid.q_block - len(seen)
    return bits_.pack(np.pad(inside, [(0, 0), (0, missing), (0, 0)]))


def from_dense(grid: Grid, mask: Array) -> Lists:
    """`mask` is bool (batches, heads, q_len, kv_len)."""
    num_batches, num_heads = mask.shape[:2]
    return from_stripes(grid, num_batches, num_heads, lambda b, h, queries: mask[b, h, queries])


def from_mask_mod(grid: Grid, mask_mod: Callable[..., Array], num_batches: int, num_heads: int, like: Array) -> Lists:
    """`mask_mod(b, h, q_idx, kv_idx)` is given index arrays beside `like`."""
    framework = frameworks.of(like)
    batches, heads, all_queries, all_keys = (
        framework.indices(np.arange(size), like) for size in (num_batches, num_heads, grid.q_len, grid.kv_len)
    )
    all_keys = all_keys[None, :]

    def stripe(batch: int, head: int, queries: slice) -> Array:
        q_idx = all_queries[queries][:, None]
        seen = mask_mod(batches[batch], heads[head], q_idx, all_keys)
        if not isinstance(seen, (bool, np.bool_)):
            check_bool("mask_mod", seen, framework)
        shape, given = (len(q_idx), grid.kv_len), tuple(getattr(seen, "shape", ()))
        if given == shape:
            return seen
        if not _broadcasts(given, shape):
            raise ValueError(f"mask_mod: expected a result that broadcasts to {shape}, got shape {given}")
        return (q_idx >= 0) & (all_keys >= 0) & seen

    return from_stripes(grid, num_batches, num_heads, stripe)


def _broadcasts(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(given, shape) == shape
    except ValueError:
        return False


def check_bool(name: str, array: Array, framework: frameworks.Framework) -> None:
    """Raises TypeError for anything but a bool array of that library."""
    found = frameworks.of(array, name)
    if found is not framework or found.dtype(array) != "bool":
        raise TypeError(f"{name}: expected a bool {framework.name} array, got {found.dtype(array)} {found.name}")
