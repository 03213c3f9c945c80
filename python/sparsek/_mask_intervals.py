"""Masks whose queries each see one interval of keys: causal, windows, packed documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _mask_bits as bits_
from . import frameworks
from ._arguments import integer
from ._csr import ranges
from ._mask_lists import Grid, Lists

Array = Any


def window_bounds(window: Any) -> tuple[int | None, int | None]:
    """(left, right) of a window given as one number or a pair; None is unbounded."""
    sides = window if isinstance(window, (tuple, list)) else (window, window)
    if len(sides) != 2:
        raise ValueError(f"window: expected (left, right) or one number for both, got {window!r}")
    left, right = (None if side is None else integer("window", side, 0) for side in sides)
    return left, right


def from_band(grid: Grid, left: int | None, right: int | None) -> Lists:
    """Query i sees keys i + d - left ... i + d + right, where d = kv_len - q_len."""
    # The band goes on beyond q_len and kv_len, so that edge blocks share its bitmaps.
    rows = grid.num_q_blocks * grid.q_block
    diagonal = np.arange(rows) + (grid.kv_len - grid.q_len)
    everything = grid.num_kv_blocks * grid.kv_block
    begin = np.zeros(rows, np.int64) if left is None else diagonal - left
    end = np.full(rows, everything) if right is None else diagonal + right + 1
    return from_intervals(grid, begin[None], end[None])


def document_lengths(
    lengths: Any, document_ids: Any, kv_lengths: Any
) -> tuple[list[tuple[np.ndarray, np.ndarray]], Array | None]:
    """For each batch the queries and keys of its documents; and the array that they came from."""
    if (lengths is None) == (document_ids is None):
        raise ValueError("lengths: expected either lengths or document_ids")
    if document_ids is not None:
        if kv_lengths is not None:
            raise ValueError("kv_lengths: expected None with document_ids")
        ids, like = _host_integers("document_ids", document_ids, (1, 2))
        if len(ids) == 0:
            raise ValueError(f"document_ids: expected at least one token, got shape {ids.shape}")
        return [(_run_lengths(row),) * 2 for row in np.atleast_2d(ids)], like
    queries, like = _host_integers("lengths", lengths, (1,))
    keys = queries
    if kv_lengths is not None:
        keys, _ = _host_integers("kv_lengths", kv_lengths, (1,))
        if len(keys) != len(queries):
            raise ValueError(f"kv_lengths: expected as many as lengths, {len(queries)}, got {len(keys)}")
    for name, values in (("lengths", queries), ("kv_lengths", keys)):
        if (values < 0).any():
            raise ValueError(f"{name}: expected lengths of at least 0, got {values.min()}")
    return [(queries, keys)], like


def _host_integers(name: str, values: Any, axes: tuple[int, ...]) -> tuple[np.ndarray, Array | None]:
    """int64 values in host memory, and the array that they came from (None for a list)."""
    like = None
    if isinstance(values, Sequence):
        array = np.asarray(values, None if len(values) else np.int64)
    else:
        framework, like = frameworks.native(values, name)
        array = framework.to_numpy(like)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    if array.ndim not in axes:
        raise ValueError(f"{name}: expected {' or '.join(map(str, axes))} axes, got shape {array.shape}")
    return array.astype(np.int64), like


def _run_lengths(ids: np.ndarray) -> np.ndarray:
    starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
    documents, pieces = np.unique(ids[starts], return_counts=True)
    if (pieces > 1).any():
        raise ValueError(
            "document_ids: expected the tokens of a document to stand together, "
            f"got document {documents[np.argmax(pieces > 1)]} in more than one piece"
        )
    return np.diff(starts, append=len(ids))


def from_documents(grid: Grid, lengths: list[tuple[np.ndarray, np.ndarray]], causal: bool) -> Lists:
    """Each query sees the keys of its own document; lengths as `document_lengths` returns them."""
    bounds = [_document_bounds(grid, queries, keys, causal) for queries, keys in lengths]
    begin, end = np.stack(bounds, axis=1)
    return from_intervals(grid, begin, end)


def _document_bounds(
    grid: Grid, q_lengths: np.ndarray, kv_lengths: np.ndarray, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    document = np.repeat(np.arange(len(q_lengths)), q_lengths)
    begin = (np.cumsum(kv_lengths) - kv_lengths)[document]
    end = begin + kv_lengths[document]
    if causal:
        queries_after = np.cumsum(q_lengths)[document] - np.arange(len(document)) - 1
        end = np.maximum(end - queries_after, begin)
    missing = grid.num_q_blocks * grid.q_block - len(document)
    return np.pad(begin, (0, missing)), np.pad(end, (0, missing))


def from_intervals(grid: Grid, begin: np.ndarray, end: np.ndarray) -> Lists:
    """Query i of batch b sees keys begin[b, i] ... end[b, i] - 1.

    Both are (batches, nq * q_block) and must not decrease within q_len along the queries.
    """
    nq, kv_block = grid.num_q_blocks, grid.kv_block
    num_batches = len(begin)
    lists = num_batches * nq
    first, stop = (np.clip(bound, 0, grid.kv_len).reshape(num_batches, nq, grid.q_block) for bound in (begin, end))
    exists = (np.arange(nq * grid.q_block) < grid.q_len).reshape(nq, grid.q_block)
    sees = (first < stop) & exists

    # Since bounds do not decrease, a query adds the blocks beyond those already listed.
    last_block = np.where(sees, (stop - 1) // kv_block, -1)
    listed = np.maximum.accumulate(last_block, axis=2)
    listed = np.concatenate([np.full((num_batches, nq, 1), -1), listed[:, :, :-1]], axis=2)
    first_new = np.maximum(first // kv_block, listed + 1).reshape(lists, grid.q_block)
    counts = np.maximum(last_block.reshape(first_new.shape) - first_new + 1, 0)
    counts *= sees.reshape(first_new.shape)
    rows = np.repeat(np.arange(lists), counts.sum(1))
    cols = ranges(first_new.reshape(-1), counts.reshape(-1))

    # A block is full when the last query begins before it and the first query ends after it.
    queries = exists.sum(1)
    latest = first[:, np.arange(nq), queries - 1].reshape(-1)
    earliest = stop[:, :, 0].reshape(-1)
    is_full = (latest[rows] <= cols * kv_block) & (earliest[rows] >= np.minimum((cols + 1) * kv_block, grid.kv_len))

    bits = np.full(len(rows), -1, np.int64)
    partial = np.flatnonzero(~is_full)
    # Bitmaps with the same bounds relative to their block are the same bitmap.
    pool = bits_.Pool()
    bounds = np.stack([bound.reshape(first_new.shape) for bound in (begin, end)], axis=1)
    for part in bits_.chunks(len(partial), 32 * grid.q_block):
        entries = partial[part]
        inside = bounds[rows[entries]] - (cols[entries] * kv_block)[:, None, None]
        inside = np.clip(inside, 0, kv_block).astype(np.int32)
        inside *= inside[:, :1] < inside[:, 1:]  # all empty intervals are one
        bits[entries] = pool.add(inside)
    inside = pool.rows((2, grid.q_block), np.int32)
    bitmaps = np.empty((len(inside), *grid.bitmap_shape), np.uint32)
    key = np.arange(kv_block)
    for part in bits_.chunks(len(inside), 4 * grid.q_block * kv_block):
        low, high = inside[part, 0, :, None], inside[part, 1, :, None]
        bitmaps[part] = bits_.pack((low <= key) & (key < high))
    return Lists(grid, num_batches, 1, rows, cols, bits, bitmaps)
