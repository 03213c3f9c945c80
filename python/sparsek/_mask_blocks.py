"""Masks from a mask_mod of torch index tensors, made on their device: only blocks that may be partial are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._mask_arrays import Arrays
from ._mask_bounds import Bounds, of_blocks
from ._mask_lists import Grid

_PAIRS = 1 << 21  # evaluated at once; mask_mod's temporaries are a few int64 arrays of that size
_BLOCKS = 1 << 21  # whose bounds are looked at at once


class NotElementwise(Exception):
    """mask_mod's result does not broadcast to (blocks, queries, keys)."""


def from_mask_mod(
    grid: Grid, mask_mod: Callable[..., Tensor], num_batches: int, num_heads: int, device: torch.device
) -> Arrays:
    """Compressed lists of int32 and int64 tensors.

    Raises NotElementwise where mask_mod cannot be given blocks of pairs of any places.
    """
    rows, cols, full, patterns = [], [], [], _Patterns(grid, device)
    for outer in range(num_batches * num_heads):
        batch, head = (torch.tensor(i, device=device) for i in divmod(outer, num_heads))
        for first, must, may in _known(grid, mask_mod, batch, head, device):
            listed = may.nonzero()
            is_full = must[listed[:, 0], listed[:, 1]]
            listed[:, 0] += first
            open_ = (~is_full).nonzero()[:, 0]
            some = torch.ones_like(is_full)
            some[open_], is_full[open_] = patterns.add(mask_mod, batch, head, listed[open_])
            rows.append(listed[some, 0] + outer * grid.num_q_blocks)
            cols.append(listed[some, 1])
            full.append(is_full[some])
    none = torch.empty(0, dtype=torch.int64, device=device)
    all_rows, all_cols = torch.cat([none, *rows]), torch.cat([none, *cols])
    is_full = torch.cat([none.bool(), *full])
    lists = torch.arange(num_batches * num_heads * grid.num_q_blocks + 1, device=device)
    numbers, bitmaps = patterns.distinct()
    bits = None
    if len(bitmaps):
        bits = torch.full_like(all_cols, -1, dtype=torch.int32)
        bits[~is_full] = numbers.int()
    return Arrays(
        indices=all_cols.int(),
        offsets=torch.searchsorted(all_rows, lists),
        bitmap_indices=bits,
        bitmaps=bitmaps if len(bitmaps) else None,
    )


def _known(
    grid: Grid, mask_mod: Callable[..., Tensor], batch: Tensor, head: Tensor, device: torch.device
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each stretch of q blocks its first one, and (must, may) of its blocks."""

    def bounds(first: int, stop: int, block: int, length: int) -> tuple[Tensor, Tensor]:
        low = torch.arange(first, stop, device=device) * block
        return low, (low + block - 1).clamp(max=length - 1)

    num_rows, num_cols = grid.num_q_blocks, grid.num_kv_blocks
    if num_cols == 0:
        return
    keys = Bounds(*(x[None, :] for x in bounds(0, num_cols, grid.kv_block, grid.kv_len)))
    step = max(1, _BLOCKS // num_cols)
    for first in range(0, num_rows, step):
        stop = min(first + step, num_rows)
        queries = Bounds(*(x[:, None] for x in bounds(first, stop, grid.q_block, grid.q_len)))
        known = of_blocks(mask_mod, batch, head, queries, keys)
        if known is None:
            every = torch.ones(stop - first, num_cols, dtype=torch.bool, device=device)
            known = ~every, every
        yield first, *known


class _Patterns:
    """The bitmaps of partial blocks, packed as they come, and each distinct one kept once in the end."""

    def __init__(self, grid: Grid, device: torch.device) -> None:
        self._grid, self._device = grid, device
        self._words: list[Tensor] = []
        self._hashes: list[Tensor] = []
        _, words = grid.bitmap_shape
        generator = torch.Generator().manual_seed(0)
        limit = 2**63 - 1
        odd = torch.randint(-limit, limit, (grid.q_block * words,), generator=generator) | 1
        self._multipliers = odd.to(device)

    def add(
        self, mask_mod: Callable[..., Tensor], batch: Tensor, head: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Evaluates blocks (n, 2) of q blocks and kv blocks: which have a pair, and which have every pair."""
        grid = self._grid
        step = max(1, _PAIRS // (grid.q_block * grid.kv_block))
        some, full = [], []
        for part in blocks.split(step):
            seen, exists = self._evaluate(mask_mod, batch, head, part)
            full.append((seen | ~exists).flatten(1).all(1))
            seen = seen & exists
            some.append(seen.flatten(1).any(1))
            words = self._pack(seen[some[-1] & ~full[-1]])
            self._words.append(words)
            self._hashes.append((words.flatten(1) * self._multipliers).sum(1))
        none = torch.empty(0, dtype=torch.bool, device=self._device)
        return torch.cat([none, *some]), torch.cat([none, *full])

    def _evaluate(
        self, mask_mod: Callable[..., Tensor], batch: Tensor, head: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """bool (n, q_block, kv_block) each: what mask_mod says, and which pairs there are."""
        grid = self._grid
        first = blocks * torch.tensor([grid.q_block, grid.kv_block], device=self._device)
        queries = first[:, :1, None] + torch.arange(grid.q_block, device=self._device)[:, None]
        keys = first[:, 1:, None] + torch.arange(grid.kv_block, device=self._device)
        exists = (queries < grid.q_len) & (keys < grid.kv_len)
        # mask_mod may look values up: it is never shown an index past the end.
        try:
            seen = mask_mod(batch, head, queries.clamp(max=grid.q_len - 1), keys.clamp(max=grid.kv_len - 1))
            if isinstance(seen, bool):
                seen = torch.tensor(seen, device=self._device)
            if seen.dtype != torch.bool:
                raise TypeError(f"got {seen.dtype}")
            return seen.expand(exists.shape), exists
        except Exception as error:  # the caller asks again with the pairs in their places, and there errors count
            raise NotElementwise(str(error)) from error

    def _pack(self, seen: Tensor) -> Tensor:
        """bool (n, q_block, kv_block) -> int32 (n, q_block, words)."""
        _, words = self._grid.bitmap_shape
        bits = torch.nn.functional.pad(seen, (0, 32 * words - self._grid.kv_block)).unflatten(2, (words, 32))
        return (bits.int() << torch.arange(32, dtype=torch.int32, device=self._device)).sum(3, dtype=torch.int32)

    def distinct(self) -> tuple[Tensor, Tensor]:
        """int64 (n), the number of each block's bitmap, and the bitmaps."""
        empty = torch.empty((0, *self._grid.bitmap_shape), dtype=torch.int32, device=self._device)
        words = torch.cat([empty, *self._words])
        self._words.clear()
        everyone = torch.arange(len(words), device=self._device)
        if len(words) == 0:
            return everyone, words
        hashes, number = torch.unique(torch.cat(self._hashes), return_inverse=True)
        first = torch.full_like(hashes, len(words)).scatter_reduce_(0, number, everyone, "amin")
        for part in everyone.split(max(1, (1 << 24) // words[0].numel())):
            if not torch.equal(words[part], words[first[number[part]]]):
                return everyone, words  # two patterns of one hash: all are kept
        return number, words[first]
