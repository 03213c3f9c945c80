"""What Hugging Face transformers says of a mask, as what `sparsek.torch.attention` takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from transformers import masking_utils

from ..block_mask import BlockMask

Q_BLOCK, KV_BLOCK = 128, 64

Window = tuple[int | None, int | None]


class Pattern(Tensor):
    """Who sees whom, in place of transformers' mask tensor.

    It goes through a model as a bool tensor (batch, 1, q_len, kv_len) that holds nothing; a model that computes with it
    gets the dense mask, made then.
    """

    mask: BlockMask | None
    window: Window  # aligned to the bottom right, on top of the mask

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], device: Any, **rest: Any) -> Pattern:
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=torch.device(device))

    def __init__(
        self,
        shape: tuple[int, ...],
        device: Any,
        mask: BlockMask | None,
        window: Window,
        dense: Callable[[], Tensor],
    ) -> None:
        self.mask, self.window, self._dense = mask, window, dense

    def __repr__(self) -> str:
        return f"Pattern(shape={tuple(self.shape)}, mask={self.mask!r}, window={self.window})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return function(*pytree.tree_map_only(Pattern, lambda x: x._dense(), args), **(kwargs or {}))


def pattern(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    **kwargs: Any,
) -> Pattern | Tensor:
    """For AttentionMaskInterface: a Pattern, or the dense bool mask of sdpa where a Pattern cannot be (see below).

    A causal mask or a sliding window costs nothing, padding costs lists of blocks, any other mask_function is evaluated
    where its blocks are partial, once for each batch entry. While decoding with a static cache, whose length only the
    device knows, for custom mask functions written for vmap, and in a traced model it is the dense mask:
    O(q_length * kv_length) memory.
    """

    def dense() -> Tensor:
        mask = masking_utils.sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            use_vmap=use_vmap,
            device=device,
            **{**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False},
        )
        return mask.expand(batch_size, -1, -1, -1)

    if use_vmap or torch.compiler.is_compiling() or isinstance(q_offset, Tensor):
        return dense()
    made = partial(Pattern, (batch_size, 1, q_length, kv_length), device, dense=dense)
    padding = None
    if attention_mask is not None:
        end = kv_offset + kv_length
        missing = max(0, end - attention_mask.shape[1])  # in a static cache: places not used yet
        padding = torch.nn.functional.pad(attention_mask.bool(), (0, missing))[:, kv_offset:end]
        padding = None if bool(padding.all()) else padding

    window = window_of(mask_function)
    aligned = q_offset + q_length == kv_offset + kv_length
    if window is not None and (aligned or window == (None, None)):
        return made(mask=None if padding is None else of_padding(padding, q_length), window=window)

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = mask_function(b, h, q_idx + q_offset, kv_idx + kv_offset)
        return seen if padding is None else seen & padding[b, kv_idx]

    mask = BlockMask.from_mask_mod(
        mask_mod,
        batch=batch_size,
        q_len=q_length,
        kv_len=kv_length,
        q_block=Q_BLOCK,
        kv_block=KV_BLOCK,
        device=device,
    )
    return made(mask=mask, window=(None, None))


def window_of(mask_function: Callable) -> Window | None:
    """The window that one of transformers' own mask functions allows; None for any other function."""
    if mask_function is masking_utils.causal_mask_function:
        return None, 0
    if mask_function is masking_utils.bidirectional_mask_function:
        return None, None
    # Closures made by functions of masking_utils: known by the function that they were written in.
    if getattr(mask_function, "__module__", None) != masking_utils.__name__:
        return None
    maker = mask_function.__qualname__.partition(".")[0]
    cells = (cell.cell_contents for cell in mask_function.__closure__ or ())
    captured = dict(zip(mask_function.__code__.co_freevars, cells, strict=True))
    size = captured.get("sliding_window")
    if maker == "sliding_window_overlay" and isinstance(size, int):
        return size - 1, None
    if maker == "sliding_window_bidirectional_overlay" and isinstance(size, int):
        return size, size
    if maker == "and_masks" and "mask_functions" in captured:
        windows = [window_of(function) for function in captured["mask_functions"]]
        if None not in windows:
            return tuple(min((w for w in side if w is not None), default=None) for side in zip(*windows, strict=True))
    return None


def of_padding(padding: Tensor, q_len: int) -> BlockMask:
    """Every query of batch entry b sees the keys where padding[b] is True; padding is bool (batch, kv_len)."""
    seen = padding[:, None, None, :]
    lists = _Lists(seen, 1, KV_BLOCK)
    num_q_blocks = -(-q_len // Q_BLOCK)

    def for_all_queries(array: Tensor) -> Tensor:
        return array.expand(*array.shape[:2], num_q_blocks, *array.shape[3:])

    return BlockMask.from_indices(
        for_all_queries(lists.indices),
        for_all_queries(lists.counts),
        q_len=q_len,
        kv_len=padding.shape[1],
        q_block=Q_BLOCK,
        kv_block=KV_BLOCK,
        bitmap_indices=for_all_queries(lists.bitmap_indices),
        bitmaps=lists.bitmaps.expand(-1, Q_BLOCK, -1),
        check=False,
    )


def of_dense(seen: Tensor) -> BlockMask:
    """The mask of a bool tensor (batches, heads, q_len, kv_len), without waiting for its device; it can be traced."""
    lists = _Lists(seen, Q_BLOCK, KV_BLOCK)
    return BlockMask.from_indices(
        lists.indices,
        lists.counts,
        q_len=seen.shape[2],
        kv_len=seen.shape[3],
        q_block=Q_BLOCK,
        kv_block=KV_BLOCK,
        bitmap_indices=lists.bitmap_indices,
        bitmaps=lists.bitmaps,
        check=False,
    )


class _Lists:
    """Padded lists of the blocks of a bool tensor that have a True; one bitmap for each of all blocks."""

    def __init__(self, seen: Tensor, q_block: int, kv_block: int) -> None:
        batches, heads, q_len, kv_len = seen.shape
        nq, nk = -(-q_len // q_block), -(-kv_len // kv_block)
        missing = (0, nk * kv_block - kv_len, 0, nq * q_block - q_len)

        def blocks(fill: bool) -> Tensor:
            padded = torch.nn.functional.pad(seen, missing, value=fill)
            return padded.reshape(batches, heads, nq, q_block, nk, kv_block).transpose(3, 4)

        inside = blocks(False)
        listed, full = inside.flatten(4).any(4), blocks(True).flatten(4).all(4)
        bits = inside.reshape(-1, q_block, kv_block // 32, 32).int()
        shifts = torch.arange(32, dtype=torch.int32, device=seen.device)
        self.bitmaps = (bits << shifts).sum(3, dtype=torch.int32)
        # Listed blocks first, in their order.
        order = (~listed).int().argsort(dim=3, stable=True)
        number = torch.arange(batches * heads * nq * nk, device=seen.device).view(batches, heads, nq, nk)
        self.counts = listed.sum(3).int()
        self.indices = order.int()
        self.bitmap_indices = torch.where(full, -1, number).gather(3, order).int()
