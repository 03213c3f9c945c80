"""Attention over the allowed blocks."""

from __future__ import annotations

from typing import Any

from . import _core, frameworks
from ._arguments import backend_name, number
from .block_mask import BlockMask

Array = Any

_LAYOUTS = ("bshd", "bhsd")


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: BlockMask | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    return_weights: bool = False,
    out: Array | None = None,
    backend: str | None = None,
) -> Any:
    """softmax(scale * q k^T) v, over the keys that each query may see.

    Axes: B batch, Sq / Sk query / key length, Hq / Hkv heads (Hq a multiple of Hkv: grouped-query attention), D
    head_dim, Dv value dim (both 1 to 256). Query i stands at position i + Sk - Sq among the keys (bottom-right
    alignment, as in FlashAttention). A query that may see no key gives zeros, and an lse of -inf.

    Args:
        q: (B, Sq, Hq, D), float16 or bfloat16 (float32 on the CPU too), numpy, torch, cupy, jax or any DLPack array.
            Any strides with a contiguous last axis; nothing is copied.
        k: (B, Sk, Hkv, D), q's dtype and device.
        v: (B, Sk, Hkv, Dv), likewise.
        mask: the blocks that may be seen, made for Sq and Sk, on q's device (`mask.to(q)`); with one list of blocks
            for each batch and head of q, for each head of k (and the query heads that share it), or for all.
        causal: a query sees no key after its position. Applies on top of `mask` and `window`.
        window: (left, right): a query sees keys from `left` before to `right` after its position; None: unbounded.
        scale: factor of q k^T, 1 / sqrt(D) by default.
        layout: "bshd" as above, or "bhsd" for (B, H, S, D) arrays, PyTorch's order; also that of the result.
        return_lse: also return the natural logarithm of the softmax's denominator, float32 (B, Hq, Sq).
        return_weights: also return the softmax probabilities, q's dtype, (B, Hq, Sq, Sk): O(Sq * Sk) memory.
        out: (B, Sq, Hq, Dv) array to write the result to. It shares no memory with q, k or v.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        out, or a tuple (out, lse), (out, weights) or (out, lse, weights). They are arrays of q's library, on its
        current stream. (JAX has no stream to give: there the call waits for the result. Inside jax.jit it is
        `sparsek.jax.attention`.)

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it, what was expected and what was given.
        NotImplementedError: no backend takes the problem; the message gives each one's reason.

    Source: the online softmax of `cpu` and `sm90` is that of Dao et al., FlashAttention (arXiv:2205.14135); the turns
    of `sm90`'s warpgroups at the tensor cores are those of Shah et al., FlashAttention-3 (arXiv:2407.08608).
    """
    return attend(
        q, k, v, mask, causal, window, scale, layout, return_lse, return_weights, out, backend, for_torch=False
    )


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: BlockMask | None,
    causal: bool,
    window: tuple[int | None, int | None] | None,
    scale: float | None,
    layout: str,
    return_lse: bool,
    return_weights: bool,
    out: Array | None,
    backend: str | None,
    for_torch: bool,
) -> Any:
    """`attention`; with `for_torch`, of torch tensors through which no gradient flows, copied where the last axis is
    not contiguous."""
    if layout not in _LAYOUTS:
        raise ValueError(f'layout: expected "bshd" or "bhsd", got {layout!r}')
    if mask is not None and not isinstance(mask, BlockMask):
        raise TypeError(
            f"mask: expected a sparsek.BlockMask (BlockMask.from_dense makes one), got {type(mask).__name__}"
        )
    left, right = (None, None) if window is None else _window(window)
    library = frameworks.of(q, "q")
    if not for_torch:
        if library.may_trace and library.traced(q):
            from . import jax

            frameworks.refuse_under_jit("out", out)
            return jax.attention(
                q,
                k,
                v,
                mask=mask,
                causal=causal,
                window=window,
                scale=scale,
                layout=layout,
                return_lse=return_lse,
                return_weights=return_weights,
                backend=backend,
            )
        library.check_no_grad("q", q)
        frameworks.of(k, "k").check_no_grad("k", k)
        frameworks.of(v, "v").check_no_grad("v", v)
    if out is not None:
        frameworks.of(out, "out").check_writable("out", out)

    # Positional: names would double what the way to the backend costs.
    results = _core.attention(
        q,
        k,
        v,
        out,
        bool(return_lse),
        bool(return_weights),
        None if mask is None else mask._view(),
        bool(causal),
        left,
        right,
        None if scale is None else number("scale", scale),
        layout == "bhsd",
        backend_name(backend),
        for_torch,
        library,
        library.exchange,
        frameworks.export,
    )
    if not (return_lse or return_weights):
        return results
    out, lse, weights = results
    if weights is None:
        return out, lse
    kv_len = k.shape[2 if layout == "bhsd" else 1]
    weights = weights if weights.shape[3] == kv_len else weights[..., :kv_len]
    return (out, lse, weights) if return_lse else (out, weights)


def _window(window: Any) -> tuple[int | None, int | None]:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise TypeError(f"window: expected (left, right) or None, got {window!r}") from None
    for side in (left, right):
        if side is None:
            continue
        if isinstance(side, bool) or not hasattr(side, "__index__"):
            raise TypeError(f"window: expected integers or None, got {window!r}")
        if side < 0:
            raise ValueError(f"window: expected left and right >= 0, got {window!r}")
        if side >= 1 << 63:
            raise ValueError(f"window: expected left and right below 2^63, got {window!r}")
    return left, right
