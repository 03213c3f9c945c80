"""Bitmaps: which keys of a block each of its queries may see, packed into 32-bit words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_ONES_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, np.uint8)
_CHUNK_BYTES = 1 << 26  # of temporaries


def num_words(kv_block: int) -> int:
    """Words in one row of a bitmap."""
    return -(-kv_block // 32)


def chunks(count: int, bytes_each: int) -> Iterator[slice]:
    """Slices that cover `count` items, so that temporaries of `bytes_each` stay small."""
    step = max(1, _CHUNK_BYTES // max(1, bytes_each))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def pack(allowed: np.ndarray) -> np.ndarray:
    """bool (..., kv_block) -> uint32 (..., words): bit c % 32 of word c // 32 is key c."""
    bytes_ = np.packbits(allowed, axis=-1, bitorder="little")
    missing = 4 * num_words(allowed.shape[-1]) - bytes_.shape[-1]
    bytes_ = np.pad(bytes_, [(0, 0)] * (allowed.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(bytes_).view("<u4")


def unpack(bitmaps: np.ndarray, kv_block: int) -> np.ndarray:
    """uint32 (..., words) -> bool (..., kv_block)."""
    bytes_ = np.ascontiguousarray(bitmaps, "<u4").view(np.uint8)
    return np.unpackbits(bytes_, axis=-1, count=kv_block, bitorder="little").view(bool)


def count_ones(bitmaps: np.ndarray, queries: int, keys: int) -> np.ndarray:
    """The set bits of each bitmap (n, q_block, words) among its first queries and keys."""
    words = bitmaps.shape[-1]
    seen = pack(np.arange(32 * words) < keys)
    ones = np.empty(len(bitmaps), np.int64)
    for part in chunks(len(bitmaps), 8 * queries * words):
        inside = bitmaps[part, :queries] & seen
        ones[part] = _ONES_OF_BYTE[inside.view(np.uint8)].sum((1, 2), np.int64)
    return ones


def transpose(bitmaps: np.ndarray, kv_block: int) -> np.ndarray:
    """(n, q_block, ceil(kv_block / 32)) -> (n, kv_block, ceil(q_block / 32))."""
    n, q_block, _ = bitmaps.shape
    out = np.empty((n, kv_block, num_words(q_block)), np.uint32)
    for part in chunks(n, 2 * q_block * kv_block):
        out[part] = pack(unpack(bitmaps[part], kv_block).swapaxes(1, 2))
    return out


class Pool:
    """Numbers rows of arrays, equal ones alike, and keeps each distinct one once."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}  # its keys, in order, are the rows

    def add(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows[0], rows[1], ..."""
        if len(rows) == 0:
            return np.empty(0, np.int64)
        data = rows.tobytes()
        size = len(data) // len(rows)
        ids = self._ids
        return np.fromiter(
            (ids.setdefault(data[i : i + size], len(ids)) for i in range(0, len(data), size)),
            np.int64,
            len(rows),
        )

    def rows(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """The distinct rows, each of that shape."""
        data = bytearray(b"".join(self._ids))  # a bytearray, for a writable array
        return np.frombuffer(data, dtype).reshape(len(self._ids), *shape)
