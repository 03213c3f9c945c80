"""PyTorch's FlexAttention BlockMask to and from the lists of a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from . import _mask_bits as bits_
from ._mask_arrays import Arrays, padded_shape, read
from ._mask_lists import Grid, Lists, tidy, union
from ._optional import require

Array = Any

_ABSENT, _FULL = -2, -1  # what stands in a table of blocks where no bitmap does; full as in Lists.bits


def from_flex(flex: Any) -> Lists:
    """The lists of PyTorch's BlockMask, its mask_mod evaluated in its partial blocks only."""
    expected = ("kv_indices", "kv_num_blocks", "full_kv_indices", "mask_mod", "seq_lengths")
    if not all(hasattr(flex, name) for name in expected):
        raise TypeError(
            f"flex_block_mask: expected a torch.nn.attention.flex_attention.BlockMask, got {type(flex).__name__}"
        )
    grid = Grid(*flex.seq_lengths, *flex.BLOCK_SIZE)
    partial = _flex_lists(grid, flex.kv_indices, flex.kv_num_blocks)
    if flex.mask_mod is not None:
        partial = _evaluate(partial, flex.mask_mod, flex.kv_indices.device)
    if flex.full_kv_indices is None:
        return tidy(partial)
    return union(partial, _flex_lists(grid, flex.full_kv_indices, flex.full_kv_num_blocks))


def _flex_lists(grid: Grid, indices: Array, counts: Array) -> Lists:
    num_batches, num_heads, *shape = padded_shape(grid, indices)
    indices = indices.reshape(num_batches, num_heads, *shape)
    return read(grid, num_batches, num_heads, Arrays(indices, counts=counts))


def _evaluate(lists: Lists, mask_mod: Callable[..., Array], device: Any) -> Lists:
    """Every listed block with a bitmap of what `mask_mod` says."""
    import torch
    from torch.nn.attention.flex_attention import create_mask

    grid = lists.grid

    def evaluate(starts: np.ndarray) -> np.ndarray:
        batches, heads, queries, keys = torch.as_tensor(starts, device=device)

        def of_block(block: Array, _: Array, query: Array, key: Array) -> Array:
            # mask_mod may look values up: it is never shown an index past the end.
            q_idx = torch.clamp(queries[block] + query, max=grid.q_len - 1)
            kv_idx = torch.clamp(keys[block] + key, max=grid.kv_len - 1)
            return mask_mod(batches[block], heads[block], q_idx, kv_idx)

        # create_mask lets `of_block` see scalars, the way FlexAttention runs a mask_mod.
        seen = create_mask(of_block, len(batches), 1, grid.q_block, grid.kv_block, device=device)
        return seen[:, 0].cpu().numpy()

    pool = bits_.Pool()
    bits = np.empty(len(lists.rows), np.int64)
    outer = lists.rows // max(1, grid.num_q_blocks)
    first_q, first_kv = lists.q_blocks * grid.q_block, lists.cols * grid.kv_block
    starts = np.stack([outer // lists.num_heads, outer % lists.num_heads, first_q, first_kv])
    for part in bits_.chunks(len(bits), 32 * grid.q_block * grid.kv_block):
        bits[part] = pool.add(bits_.pack(evaluate(starts[:, part])))
    return replace(lists, bits=bits, bitmaps=pool.rows(grid.bitmap_shape, np.uint32))


def to_flex(lists: Lists, device: Any) -> Any:
    """PyTorch's BlockMask of the same pairs, on that device."""
    torch = require("torch", "torch", "BlockMask.to_flex")
    flex = require("torch.nn.attention.flex_attention", "torch", "BlockMask.to_flex")
    grid = lists.grid
    shape = (lists.num_batches, lists.num_heads, grid.num_q_blocks)

    def ordered(entries: np.ndarray) -> tuple[Any, Any]:
        """kv_num_blocks and kv_indices of some entries; unused places hold block 0."""
        rows, cols = lists.rows[entries], lists.cols[entries]
        counts = np.bincount(rows, minlength=lists.num_lists)
        starts = np.cumsum(counts) - counts
        indices = np.zeros((lists.num_lists, max(1, grid.num_kv_blocks)), np.int32)
        indices[rows, np.arange(len(rows)) - starts[rows]] = cols
        arrays = (counts.astype(np.int32).reshape(shape), indices.reshape(*shape, -1))
        counts, indices = (torch.as_tensor(array, device=device) for array in arrays)
        return counts, indices

    # As create_block_mask has it, a block that goes past the end is partial.
    whole = (lists.queries == grid.q_block) & (lists.keys_in_block == grid.kv_block)
    partial = (lists.bits >= 0) | ~whole
    table = np.full((lists.num_lists, max(1, grid.num_kv_blocks)), _ABSENT, np.int32)
    table[lists.rows, lists.cols] = lists.bits
    table = torch.as_tensor(table.reshape(*shape, -1), device=device)
    # FlexAttention may evaluate mask_mod in blocks that are not listed: there has to be one to read.
    bitmaps = lists.bitmaps if len(lists.bitmaps) else np.zeros((1, *grid.bitmap_shape), np.uint32)
    bitmaps = torch.as_tensor(bitmaps.view(np.int32), device=device)

    def mask_mod(b: Array, h: Array, q_idx: Array, kv_idx: Array) -> Array:
        block = table[b % shape[0], h % shape[1], q_idx // grid.q_block, kv_idx // grid.kv_block]
        key = kv_idx % grid.kv_block
        word = bitmaps[block.clamp(min=0), q_idx % grid.q_block, key // 32]
        return (block == _FULL) | ((block >= 0) & ((word >> (key % 32).int()) & 1 == 1))

    return flex.BlockMask.from_kv_blocks(
        *ordered(np.flatnonzero(partial)),
        *ordered(np.flatnonzero(~partial)),
        BLOCK_SIZE=(grid.q_block, grid.kv_block),
        mask_mod=mask_mod,
        seq_lengths=(grid.q_len, grid.kv_len),
    )
