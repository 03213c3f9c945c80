"""The pairs that a BlockMask allows, for some of its q blocks: bool tensors made on its device, without waiting for it.

What is out of range in the lists counts as absent, as in the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..block_mask import BlockMask


class MaskRows:
    """A BlockMask of torch tensors, read one stretch of q blocks at a time."""

    def __init__(self, mask: BlockMask) -> None:
        self._mask = mask
        indices, self._device = mask.indices, mask.indices.device
        num_lists = mask.num_batches * mask.num_heads * mask.num_q_blocks
        entries = torch.arange(indices.numel(), device=self._device)
        if mask.offsets is not None:
            lists = torch.searchsorted(mask.offsets, entries, right=True) - 1
            listed = (lists >= 0) & (lists < num_lists)
        else:
            max_count = max(1, indices.shape[-1])
            lists = entries // max_count
            listed = entries % max_count < mask.counts.reshape(-1).repeat_interleave(indices.shape[-1])
        self._cols = indices.reshape(-1).long()
        listed = listed & (self._cols >= 0) & (self._cols < mask.num_kv_blocks)

        # Blocks of one bit pattern each: the mask's bitmaps, then the full block, then the empty one.
        shape = (1, mask.q_block, -(-mask.kv_block // 32))
        full, none = (torch.full(shape, value, dtype=torch.int32, device=self._device) for value in (-1, 0))
        num_bitmaps = 0 if mask.bitmaps is None else len(mask.bitmaps)
        self._patterns = torch.cat([*([mask.bitmaps] if num_bitmaps else []), full, none])
        self._none = num_bitmaps + 1
        if mask.bitmap_indices is None:
            self._pattern = torch.full_like(self._cols, num_bitmaps)
        else:
            self._pattern = mask.bitmap_indices.reshape(-1).long()
            listed = listed & (self._pattern >= -1) & (self._pattern < num_bitmaps)
            self._pattern = torch.where(self._pattern < 0, num_bitmaps, self._pattern)
        nq = max(1, mask.num_q_blocks)
        self._outer, self._q_block = lists // nq, lists % nq
        self._listed = listed

    def allowed(self, first: int, stop: int) -> Tensor:
        """bool (num_batches, num_heads, rows, kv_len): the queries of q blocks first ... stop - 1."""
        mask, nk = self._mask, self._mask.num_kv_blocks
        num_outer, blocks = mask.num_batches * mask.num_heads, stop - first
        here = self._listed & (self._q_block >= first) & (self._q_block < stop)
        size = num_outer * blocks * nk
        place = (self._outer * blocks + self._q_block - first) * nk + self._cols
        # Entries of other q blocks go to one place behind the end.
        table = torch.full((size + 1,), self._none, device=self._device)
        table.scatter_(0, torch.where(here, place, size), self._pattern)
        words = self._patterns[table[:size].view(num_outer, blocks, nk)]
        bits = words[..., None] >> torch.arange(32, dtype=torch.int32, device=self._device)
        seen = (bits & 1).bool().flatten(-2)[..., : mask.kv_block]  # (outer, blocks, nk, q_block, kv_block)
        seen = seen.transpose(2, 3).reshape(mask.num_batches, mask.num_heads, blocks * mask.q_block, nk * mask.kv_block)
        rows = min(stop * mask.q_block, mask.q_len) - first * mask.q_block
        return seen[:, :, :rows, : mask.kv_len]
