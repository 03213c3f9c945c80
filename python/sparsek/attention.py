"""Attention over the allowed blocks."""

from __future__ import annotations

from typing import Any

from . import _core, frameworks
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
            for each batch and head of q, or one for all.
        causal: a query sees no key after its position. Applies on top of `mask` and `window`.
        window: (left, right): a query sees keys from `left` before to `right` after its position; None: unbounded.
        scale: factor of q k^T, 1 / sqrt(D) by default.
        layout: "bshd" as above, or "bhsd" for (B, H, S, D) arrays, PyTorch's order; also that of the result.
        return_lse: also return the natural logarithm of the softmax's denominator, float32 (B, Hq, Sq).
        return_weights: also return the softmax probabilities, q's dtype, (B, Hq, Sq, Sk): O(Sq * Sk) memory.
        out: (B, Sq, Hq, Dv) array to write the result to.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        out, or (out, lse), (out, weights), (out, lse, weights): arrays of q's library, on its current stream. (JAX has
        no stream to give: there the call waits for the result.)

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it, what was expected and what was given.
        NotImplementedError: no backend takes the problem; the message gives each one's reason.

    Source: the online softmax of the CPU backend is that of Dao et al., FlashAttention (arXiv:2205.14135).
    """
    if layout not in _LAYOUTS:
        raise ValueError(f'layout: expected "bshd" or "bhsd", got {layout!r}')
    if mask is not None and not isinstance(mask, BlockMask):
        raise TypeError(
            f"mask: expected a sparsek.BlockMask (BlockMask.from_dense makes one), got {type(mask).__name__}"
        )
    left, right = _window(window)
    inputs = {"q": q, "k": k, "v": v}
    adapters = {name: frameworks.of(array, name) for name, array in inputs.items()}
    for name, array in inputs.items():
        adapters[name].check_no_grad(name, array)
        if len(array.shape) != 4:
            raise ValueError(f"{name}: expected 4 axes ({layout}), got shape {tuple(array.shape)}")
    library = adapters["q"]
    heads_first = layout == "bhsd"
    batch, q_len, num_heads = (q.shape[axis] for axis in ((0, 2, 1) if heads_first else (0, 1, 2)))
    kv_len = k.shape[2 if heads_first else 1]
    dtype = library.dtype(q)

    if out is None:
        # Errors in q and v are reported by the native check, which needs an output to speak of.
        out_shape = (*q.shape[:3], v.shape[3])
        out = library.empty(out_shape, _output_dtype(dtype), q)
        exported_out = library.export(out)
    else:
        out_library = frameworks.of(out, "out")
        out_library.check_writable("out", out)
        exported_out = out_library.export(out)
    lse = weights = None
    if return_lse:
        lse = library.empty((batch, num_heads, q_len), "float32", q)
    if return_weights:
        # Rows of a multiple of 16 bytes, which the GPU's bulk copies ask for.
        padded = -(-kv_len // 8) * 8
        weights = library.empty((batch, num_heads, q_len, padded), _output_dtype(dtype), q)

    stream = library.stream(q)
    _core.attention(
        q=library.export(q),
        k=adapters["k"].export(k),
        v=adapters["v"].export(v),
        out=exported_out,
        lse=None if lse is None else library.export(lse),
        weights=None if weights is None else library.export(weights),
        mask=None if mask is None else mask._view(),
        causal=bool(causal),
        window_left=left,
        window_right=right,
        scale=None if scale is None else float(scale),
        heads_first=heads_first,
        backend=backend or "",
        stream=stream,
        allocate=lambda size: library.export(library.empty((size,), "uint8", q)),
    )
    library.finish(stream)
    results = [out]
    if return_lse:
        results.append(lse)
    if return_weights:
        results.append(weights if weights.shape[3] == kv_len else weights[..., :kv_len])
    return results[0] if len(results) == 1 else tuple(results)


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
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
    return left, right


def _output_dtype(dtype: str) -> str:
    # An unsupported dtype is the native check's to refuse; until then any output will do.
    return dtype if dtype in ("float16", "bfloat16", "float32") else "float32"
