"""The blocks of a mask as sorted coordinates in host memory, and the algebra of such lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import _mask_bits as bits_
from ._arguments import integer
from ._csr import offsets_of, ranges


@dataclass(frozen=True)
class Grid:
    """The blocks that a mask may list."""

    q_len: int
    kv_len: int
    q_block: int
    kv_block: int

    @property
    def num_q_blocks(self) -> int:
        return -(-self.q_len // self.q_block)

    @property
    def num_kv_blocks(self) -> int:
        return -(-self.kv_len // self.kv_block)

    @property
    def bitmap_shape(self) -> tuple[int, int]:
        return self.q_block, bits_.num_words(self.kv_block)

    @property
    def transposed(self) -> Grid:
        return Grid(self.kv_len, self.q_len, self.kv_block, self.q_block)


def make_grid(q_len: int, kv_len: int, q_block: int, kv_block: int) -> Grid:
    """The grid that a caller asked for; raises TypeError or ValueError for wrong sizes."""
    return Grid(
        integer("q_len", q_len, 0),
        integer("kv_len", kv_len, 0),
        integer("q_block", q_block),
        integer("kv_block", kv_block),
    )


@dataclass(frozen=True)
class Lists:
    """Entry e lists kv block cols[e] for list rows[e] = (batch * num_heads + head) * nq + q block.

    Entries ascend by row, then column. bits[e] is -1 for a full block, else its bitmap's number.
    """

    grid: Grid
    num_batches: int
    num_heads: int
    rows: np.ndarray  # int64 (n)
    cols: np.ndarray  # int64 (n)
    bits: np.ndarray  # int64 (n)
    bitmaps: np.ndarray  # uint32 (num_bitmaps, q_block, ceil(kv_block / 32))

    @property
    def num_lists(self) -> int:
        return self.num_batches * self.num_heads * self.grid.num_q_blocks

    @property
    def keys(self) -> np.ndarray:
        """One number for each entry's (row, column), ascending."""
        return self.rows * self.grid.num_kv_blocks + self.cols

    @property
    def q_blocks(self) -> np.ndarray:
        return self.rows % max(1, self.grid.num_q_blocks)

    @property
    def queries(self) -> np.ndarray:
        """Queries of each entry's block that exist: fewer in the last q block."""
        return np.minimum(self.grid.q_len - self.q_blocks * self.grid.q_block, self.grid.q_block)

    @property
    def keys_in_block(self) -> np.ndarray:
        """Keys of each entry's block that exist: fewer in the last kv block."""
        return np.minimum(self.grid.kv_len - self.cols * self.grid.kv_block, self.grid.kv_block)

    def offsets(self) -> np.ndarray:
        """int64 (num_lists + 1): where each list starts among the entries."""
        return offsets_of(self.rows, self.num_lists)

    def select(self, keep: np.ndarray) -> Lists:
        """The entries that `keep`, a mask or an order, picks."""
        return replace(self, rows=self.rows[keep], cols=self.cols[keep], bits=self.bits[keep])


def sort(lists: Lists) -> Lists:
    keys = lists.keys
    if np.all(keys[1:] >= keys[:-1]):
        return lists
    return lists.select(np.argsort(keys, kind="stable"))


def broadcast(lists: Lists, num_batches: int, num_heads: int) -> Lists:
    """The lists repeated for every batch and head; sizes other than 1 must agree."""
    if (lists.num_batches, lists.num_heads) == (num_batches, num_heads):
        return lists
    nq = lists.grid.num_q_blocks
    source = np.arange(lists.num_lists).reshape(lists.num_batches, lists.num_heads, nq)
    source = np.broadcast_to(source, (num_batches, num_heads, nq)).reshape(-1)
    offsets = lists.offsets()
    counts = np.diff(offsets)[source]
    repeated = lists.select(ranges(offsets[source], counts))
    rows = np.repeat(np.arange(len(source)), counts)
    return replace(repeated, num_batches=num_batches, num_heads=num_heads, rows=rows)


def align(a: Lists, b: Lists) -> tuple[Lists, Lists]:
    """Both with the same batches and heads; raises ValueError where they do not fit together."""
    for name in ("q_len", "kv_len", "q_block", "kv_block"):
        given = getattr(a.grid, name), getattr(b.grid, name)
        if given[0] != given[1]:
            raise ValueError(f"expected masks of the same {name}, got {given[0]} and {given[1]}")
    sizes = []
    for name in ("num_batches", "num_heads"):
        given = getattr(a, name), getattr(b, name)
        if given[0] != given[1] and 1 not in given:
            raise ValueError(f"expected masks whose {name} are equal or 1, got {given[0]} and {given[1]}")
        sizes.append(max(given))
    return broadcast(a, *sizes), broadcast(b, *sizes)


def intersect(a: Lists, b: Lists) -> Lists:
    """Pairs in both; same grid, batches and heads."""
    _, in_a, in_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
    bits, bitmaps = _combine(a, b, a.bits[in_a], b.bits[in_b], np.bitwise_and)
    return tidy(replace(a.select(in_a), bits=bits, bitmaps=bitmaps))


def union(a: Lists, b: Lists) -> Lists:
    """Pairs in either; same grid, batches and heads."""
    keys, in_a, in_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
    both, bitmaps = _combine(a, b, a.bits[in_a], b.bits[in_b], np.bitwise_or)
    only_a = a.select(~np.isin(a.keys, keys, assume_unique=True))
    only_b = b.select(~np.isin(b.keys, keys, assume_unique=True))
    bits_b = np.where(only_b.bits >= 0, only_b.bits + len(a.bitmaps), -1)
    joined = replace(
        a,
        rows=np.concatenate([a.rows[in_a], only_a.rows, only_b.rows]),
        cols=np.concatenate([a.cols[in_a], only_a.cols, only_b.cols]),
        bits=np.concatenate([both, only_a.bits, bits_b]),
        bitmaps=bitmaps,
    )
    return tidy(sort(joined))


def _combine(a: Lists, b: Lists, bits_a: np.ndarray, bits_b: np.ndarray, op: np.ufunc) -> tuple[np.ndarray, np.ndarray]:
    """`op` on blocks that both list: bitmap numbers, and the bitmaps of a, b and new ones."""
    both = (bits_a >= 0) & (bits_b >= 0)
    if op is np.bitwise_and:  # a full block leaves the other as it is
        bits = np.where(bits_a >= 0, bits_a, np.where(bits_b >= 0, bits_b + len(a.bitmaps), -1))
    else:
        bits = np.full(len(bits_a), -1, np.int64)
    step = max(1, len(b.bitmaps))
    pairs, which = np.unique(bits_a[both] * step + bits_b[both], return_inverse=True)
    bits[both] = len(a.bitmaps) + len(b.bitmaps) + which
    combined = op(a.bitmaps[pairs // step], b.bitmaps[pairs % step])
    return bits, np.concatenate([a.bitmaps, b.bitmaps, combined])


def tidy(lists: Lists) -> Lists:
    """Empty blocks dropped, bitmaps that hold every pair made full blocks, equal bitmaps shared."""
    pairs = num_pairs(lists)
    bits = np.where(pairs == lists.queries * lists.keys_in_block, -1, lists.bits)
    lists = replace(lists, bits=bits).select(pairs > 0)

    partial = lists.bits >= 0
    used, which = np.unique(lists.bits[partial], return_inverse=True)
    pool = bits_.Pool()
    ids = np.empty(len(used), np.int64)
    for part in bits_.chunks(len(used), lists.bitmaps[:1].nbytes):
        ids[part] = pool.add(lists.bitmaps[used[part]])
    lists.bits[partial] = ids[which]
    return replace(lists, bitmaps=pool.rows(lists.grid.bitmap_shape, np.uint32))


def transpose(lists: Lists) -> Lists:
    """Queries and keys swapped."""
    nq, nk = lists.grid.num_q_blocks, lists.grid.num_kv_blocks
    swapped = replace(
        lists,
        grid=lists.grid.transposed,
        rows=lists.rows // max(1, nq) * nk + lists.cols,
        cols=lists.q_blocks,
        bitmaps=bits_.transpose(lists.bitmaps, lists.grid.kv_block),
    )
    return sort(swapped)


def num_pairs(lists: Lists) -> np.ndarray:
    """int64 (entries): the (query, key) pairs of each listed block, within q_len and kv_len."""
    queries, keys = lists.queries, lists.keys_in_block
    pairs = queries * keys
    partial = np.flatnonzero(lists.bits >= 0)
    # At most four sizes of a block: inside, at the last queries, at the last keys, at both.
    sizes, size_of = np.unique(np.stack([queries[partial], keys[partial]]), axis=1, return_inverse=True)
    size_of = size_of.reshape(-1)
    for size, (num_queries, num_keys) in enumerate(sizes.T):
        entries = partial[size_of == size]
        used, which = np.unique(lists.bits[entries], return_inverse=True)
        pairs[entries] = bits_.count_ones(lists.bitmaps[used], num_queries, num_keys)[which]
    return pairs


def to_dense(lists: Lists) -> np.ndarray:
    """bool (num_batches, num_heads, q_len, kv_len)."""
    grid = lists.grid
    nq, nk = grid.num_q_blocks, grid.num_kv_blocks
    outer = lists.num_batches * lists.num_heads
    dense = np.zeros((outer, nq, grid.q_block, nk, grid.kv_block), bool)

    def index(entries: np.ndarray) -> tuple:
        rows = lists.rows[entries]
        return rows // nq, rows % nq, slice(None), lists.cols[entries]

    dense[index(np.flatnonzero(lists.bits < 0))] = True
    partial = np.flatnonzero(lists.bits >= 0)
    for part in bits_.chunks(len(partial), 2 * grid.q_block * grid.kv_block):
        bitmaps = lists.bitmaps[lists.bits[partial[part]]]
        dense[index(partial[part])] = bits_.unpack(bitmaps, grid.kv_block)
    dense = dense.reshape(lists.num_batches, lists.num_heads, nq * grid.q_block, nk * grid.kv_block)
    return np.ascontiguousarray(dense[:, :, : grid.q_len, : grid.kv_len])
