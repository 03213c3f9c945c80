"""`sparsek.torch.attention` and its operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._arguments import backend_name
from .._mask_arrays import Arrays
from .._mask_lists import Grid
from ..attention import _LAYOUTS, _window, attend
from ..block_mask import BlockMask
from ._attention_backward import attention_backward
from ._dispatch import (
    LIBRARY,
    autocast_dtype,
    cast,
    check_tensor,
    define,
    refuse_second_derivatives,
    refuse_tangents,
    runs_directly,
)

_MASK = "Tensor? indices, Tensor? offsets, Tensor? counts, Tensor? bitmap_indices, Tensor? bitmaps, SymInt[] mask_sizes"
_RULES = "bool causal, SymInt? left, SymInt? right, float? scale, bool heads_first"


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: BlockMask | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    return_weights: bool = False,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Any:
    """softmax(scale * q k^T) v as `sparsek.attention` computes it, for torch tensors in any torch program.

    It traces under torch.compile(fullgraph=True) and torch.export with dynamic shapes, is captured in CUDA graphs, runs
    under torch.vmap (one call for each entry of the mapped axis) and has gradients with respect to q, k and v, also
    through lse. The backward pass is unfused and slow: it recomputes the probabilities in float32 for one stretch of
    queries after another, O(stretch * Sk) memory, all blocks within the causal or window band whether listed or not.
    It has no derivative of its own.

    Args:
        q: (B, Sq, Hq, D) float16, bfloat16 or float32; with layout="bhsd" (B, Hq, Sq, D). A tensor whose last axis is
            not contiguous is copied first. Under autocast q, k and v are cast to its dtype.
        k: (B, Sk, Hkv, D), q's dtype and device.
        v: (B, Sk, Hkv, Dv), likewise.
        mask: the blocks that may be seen, made for Sq and Sk, of tensors on q's device (`mask.to(q)`).
        causal: a query sees no key after its position. Applies on top of `mask` and `window`.
        window: (left, right): a query sees keys from `left` before to `right` after its position; None: unbounded.
        scale: factor of q k^T, 1 / sqrt(D) by default.
        layout: "bshd" as above, or "bhsd" for (B, H, S, D) tensors, PyTorch's order; also that of the result.
        return_lse: also return the natural logarithm of the softmax's denominator, float32 (B, Hq, Sq).
        return_weights: also return the softmax probabilities, as `sparsek.attention` does; only where nothing is
            traced and no gradient is wanted.
        out: (B, Sq, Hq, Dv) tensor to write the result to; likewise.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        out (B, Sq, Hq, Dv), or a tuple (out, lse), (out, weights) or (out, lse, weights).

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it, what was expected and what was given.
        NotImplementedError: no backend takes the problem; `out` or `return_weights` while tracing or with a gradient;
            a forward-mode derivative.

    Source: the backward formulas are those of Dao et al., FlashAttention (arXiv:2205.14135), section B.4, unfused.
    """
    dtype = autocast_dtype(check_tensor("q", q))
    if dtype is not None:
        q, k, v = (cast(check_tensor(name, x), dtype) for name, x in (("q", q), ("k", k), ("v", v)))
    refuse_tangents("attention", q, k, v)
    if runs_directly(q, k, v):
        return attend(
            q, k, v, mask, causal, window, scale, layout, return_lse, return_weights, out, backend, for_torch=True
        )

    for name, value in (("k", k), ("v", v)):
        check_tensor(name, value)
    if layout not in _LAYOUTS:
        raise ValueError(f'layout: expected "bshd" or "bhsd", got {layout!r}')
    for name, given in (("out", out is not None), ("return_weights", return_weights)):
        if given:
            raise NotImplementedError(f"{name}: not available while tracing, under vmap or where a gradient is wanted")
    left, right = (None, None) if window is None else _window(window)
    result, lse = torch.ops.sparsek.attention(
        q,
        k,
        v,
        *_mask_arguments(mask),
        bool(causal),
        left,
        right,
        scale,
        layout == "bhsd",
        backend_name(backend),
    )
    return (result, lse) if return_lse else result


def _mask_arguments(mask: BlockMask | None) -> tuple:
    if mask is None:
        return None, None, None, None, None, []
    if not isinstance(mask, BlockMask):
        raise TypeError(
            f"mask: expected a sparsek.BlockMask (BlockMask.from_dense makes one), got {type(mask).__name__}"
        )
    if not isinstance(mask.indices, Tensor):
        raise TypeError(
            f"mask: expected one of torch tensors (mask.to(q)), got one of {type(mask.indices).__name__} arrays"
        )
    sizes = [mask.q_len, mask.kv_len, mask.q_block, mask.kv_block, mask.num_batches, mask.num_heads]
    return mask.indices, mask.offsets, mask.counts, mask.bitmap_indices, mask.bitmaps, sizes


def _as_mask(arrays: tuple[Tensor | None, ...], sizes: list[int]) -> BlockMask | None:
    if not sizes:
        return None
    *grid, num_batches, num_heads = sizes
    return BlockMask(Grid(*grid), num_batches, num_heads, Arrays(*arrays))


def _kernel(q, k, v, indices, offsets, counts, bitmap_indices, bitmaps, mask_sizes, causal, left, right, scale, heads_first, backend):  # fmt: skip # noqa: E501
    mask = _as_mask((indices, offsets, counts, bitmap_indices, bitmaps), mask_sizes)
    layout = "bhsd" if heads_first else "bshd"
    return attend(q, k, v, mask, causal, (left, right), scale, layout, True, False, None, backend, for_torch=True)


def _fake(q, k, v, indices, offsets, counts, bitmap_indices, bitmaps, mask_sizes, causal, left, right, scale, heads_first, backend):  # fmt: skip # noqa: E501
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            layout = "bhsd" if heads_first else "bshd"
            raise ValueError(f"{name}: expected 4 axes ({layout}), got shape {tuple(x.shape)}")
    batch, heads, q_len = (q.shape[axis] for axis in ((0, 1, 2) if heads_first else (0, 2, 1)))
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    return out, q.new_empty((batch, heads, q_len), dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
    q, k, v, *arrays, mask_sizes, causal, left, right, scale, heads_first, _ = inputs
    ctx.save_for_backward(q, k, v, *output, *arrays)
    ctx.rules = (mask_sizes, causal, left, right, scale, heads_first)


def _backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple:
    q, k, v, out, lse, *arrays = ctx.saved_tensors
    grads = torch.ops.sparsek.attention_backward(grad_out, grad_lse, q, k, v, out, lse, *arrays, *ctx.rules)
    return (*grads, *[None] * 12)


def _backward_kernel(grad_out, grad_lse, q, k, v, out, lse, indices, offsets, counts, bitmap_indices, bitmaps, mask_sizes, causal, left, right, scale, heads_first):  # fmt: skip # noqa: E501
    mask = _as_mask((indices, offsets, counts, bitmap_indices, bitmaps), mask_sizes)
    return attention_backward(
        (grad_out, grad_lse), (q, k, v), (out, lse), mask, causal, (left, right), scale, heads_first
    )


def _backward_fake(grad_out, grad_lse, q, k, v, *rest):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


define(f"attention(Tensor q, Tensor k, Tensor v, {_MASK}, {_RULES}, str backend) -> (Tensor, Tensor)", _kernel, _fake)
define(
    "attention_backward(Tensor grad_out, Tensor grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_MASK}, {_RULES}) -> (Tensor, Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)
torch.library.register_autograd("sparsek::attention", _backward, setup_context=_setup_context, lib=LIBRARY)
refuse_second_derivatives("attention")
