"""sparsek inside JAX programs: `attention` and `bsr_gemm` on JAX arrays, in and out of `jax.jit`.

On a GPU the work goes to XLA's own stream. `BlockMask` and `BSRMatrix` become pytrees when this module is imported:
they can be arguments and results of compiled functions. All the arrays of a mask are leaves, so that its lists may
change without compiling anew; of a matrix the values are leaves, and the structure belongs to the compiled program.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from . import _core, _jax_call, frameworks
from ._arguments import backend_name
from ._jax_call import Call, attributes, jax
from ._mask_arrays import Arrays
from .attention import _LAYOUTS, _window
from .block_mask import BlockMask
from .bsr_matrix import BSRMatrix

__all__ = ["attention", "bsr_gemm"]

Array = Any

_MASK_ARRAYS = ("indices", "offsets", "counts", "bitmap_indices", "bitmaps")


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
    backend: str | None = None,
) -> Any:
    """softmax(scale * q k^T) v over the keys that each query may see, as `sparsek.attention`, for JAX programs.

    Axes: B batch, Sq / Sk query / key length, Hq / Hkv heads (Hq a multiple of Hkv), D head_dim, Dv value dim (both 1
    to 256). Query i stands at position i + Sk - Sq among the keys. A query that may see no key gives zeros, and an lse
    of -inf. Under `jax.vmap` the calls run one after the other.

    Args:
        q: (B, Sq, Hq, D) jax.Array or NumPy array, float16 or bfloat16 (float32 on the CPU too).
        k: (B, Sk, Hkv, D), q's dtype.
        v: (B, Sk, Hkv, Dv), likewise.
        mask: the blocks that may be seen, made for Sq and Sk, with JAX or NumPy arrays; with lists for each batch and
            head of q, or for all. Lists may be traced: `BlockMask.from_indices(..., check=False)` works inside jit.
        causal: a query sees no key after its position. Applies on top of `mask` and `window`.
        window: (left, right): tokens before and after its position that a query sees; None: unbounded.
        scale: factor of q k^T, a Python number; 1 / sqrt(D) by default.
        layout: "bshd" as above, or "bhsd" for (B, H, S, D) arrays; also that of the result.
        return_lse: also return the natural logarithm of the softmax's denominator, float32 (B, Hq, Sq).
        return_weights: also return the softmax probabilities, q's dtype, (B, Hq, Sq, Sk): O(Sq * Sk) memory.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        out (B, Sq, Hq, Dv) of q's dtype, or a tuple (out, lse), (out, weights) or (out, lse, weights) of jax.Array.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it. Under jit, while it is traced.
        NotImplementedError: no backend takes the problem, or a gradient was asked for: there is none yet.
        jax.errors.JaxRuntimeError: inside jit, where the device is known only later: no backend takes the problem.

    Source: as `sparsek.attention`; called through XLA's foreign function interface.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f'layout: expected "bshd" or "bhsd", got {layout!r}')
    if mask is not None and not isinstance(mask, BlockMask):
        raise TypeError(
            f"mask: expected a sparsek.BlockMask (BlockMask.from_dense makes one), got {type(mask).__name__}"
        )
    _jax_call.check_name("attention", backend)
    left, right = (None, None) if window is None else _window(window)
    q, k, v = (_jax_call.array(name, value) for name, value in (("q", q), ("k", k), ("v", v)))
    for name, value in (("q", q), ("k", k), ("v", v)):
        if value.ndim != 4:
            raise ValueError(f"{name}: expected 4 axes ({layout}), got shape {tuple(value.shape)}")
    heads_first = layout == "bhsd"
    batch, q_len, num_heads, head_dim = _bshd(q, heads_first)
    _, kv_len, _, value_dim = _bshd(v, heads_first)
    sizes = None if mask is None else _sizes(mask)
    scale = None if scale is None else float(scale)
    _core.jax_check_attention(
        *(_jax_call.spec(value) for value in (q, k, v)),
        mask=sizes,
        causal=bool(causal),
        window_left=left,
        window_right=right,
        scale=scale,
        heads_first=heads_first,
        return_lse=bool(return_lse),
        return_weights=bool(return_weights),
        backend=_jax_call.checked_backend(backend, q),
        device_index=_jax_call.device_index(q),
    )
    dtype = q.dtype.name
    results = [((*q.shape[:3], value_dim), dtype)]
    if return_lse:
        results.append(((batch, num_heads, q_len), "float32"))
    if return_weights:
        # Rows of a multiple of 16 bytes, which the GPU's bulk copies ask for.
        results.append(((batch, num_heads, q_len, -(-kv_len // 8) * 8), dtype))
    described = attributes(
        heads_first=heads_first,
        masked=mask is not None,
        return_lse=bool(return_lse),
        return_weights=bool(return_weights),
        causal=bool(causal),
        window_left=-1 if left is None else int(left),
        window_right=-1 if right is None else int(right),
        scale=1 / math.sqrt(head_dim) if scale is None else scale,
        backend=backend_name(backend),
    )
    arrays = [q, k, v]
    if mask is not None:
        more, mask_arrays = _describe(mask, sizes)
        described, arrays = described + more, arrays + mask_arrays
    out, *rest = _jax_call.run(Call("attention", tuple(results), described), *arrays)
    if return_weights:
        rest[-1] = rest[-1][..., :kv_len]
    return (out, *rest) if rest else out


def _bshd(array: Array, heads_first: bool) -> tuple[int, int, int, int]:
    first, second, third, last = array.shape
    return (first, third, second, last) if heads_first else (first, second, third, last)


def _sizes(mask: BlockMask) -> list[int]:
    return [mask.q_len, mask.kv_len, mask.q_block, mask.kv_block, mask.num_batches, mask.num_heads]


def _describe(mask: BlockMask, sizes: list[int]) -> tuple[Any, list[Array]]:
    """A mask's attributes and arrays, in the order in which the handler reads them."""
    padded, partial = mask.counts is not None, mask.bitmaps is not None
    names = ("mask_q_len", "mask_kv_len", "q_block", "kv_block", "num_batches", "num_heads")
    described = attributes(padded=padded, partial=partial, **dict(zip(names, sizes, strict=True)))
    arrays = [_mask_array("indices", mask.indices)]
    arrays.append(
        _mask_array("counts", mask.counts) if padded else _jax_call.wide("mask", _mask_array("offsets", mask.offsets))
    )
    if partial:
        arrays += [_mask_array("bitmap_indices", mask.bitmap_indices), _mask_array("bitmaps", mask.bitmaps)]
    return described, arrays


def _mask_array(name: str, value: Array) -> Array:
    if not isinstance(value, (jax.Array, np.ndarray)):
        raise TypeError(
            f"mask: expected {name} to be a JAX or NumPy array, got {type(value).__name__}: mask.to(q) moves a mask"
        )
    return value


def bsr_gemm(
    a: Array | BSRMatrix,
    b: Array | BSRMatrix,
    *,
    alpha: float = 1.0,
    c: Array | None = None,
    beta: float = 0.0,
    out_dtype: Any = None,
    backend: str | None = None,
) -> Array:
    """alpha * a b + beta * c with one block-sparse operand, as `sparsek.bsr_gemm`, for JAX programs.

    The matrix's values may be traced. Its structure may not: a compiled program belongs to one structure. Under
    `jax.vmap` the calls run one after the other.

    Args:
        a: (M, K) jax.Array or NumPy array, or a BSRMatrix (its transpose `.T` too) of such arrays; float16 or bfloat16
            (float32 on the CPU too).
        b: (K, N), likewise, a's dtype; exactly one of a and b is a BSRMatrix.
        alpha: factor of the product, a Python number.
        c: (M, N) array of the result's dtype; read if beta != 0.
        beta: factor of c, a Python number.
        out_dtype: a's dtype by default, or float32. Sums are always in float32.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem. `sm90` plans each call
            anew, on the GPU, since XLA keeps nothing between calls.

    Returns:
        (M, N) jax.Array.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it. Under jit, while it is traced.
        NotImplementedError: two BSRMatrix or none (`sparsek.bsr_gemm` takes them, outside jit), no backend takes the
            problem, or a gradient was asked for: there is none yet.
        jax.errors.JaxRuntimeError: inside jit, where the device is known only later: no backend takes the problem.

    Source: as `sparsek.bsr_gemm`; called through XLA's foreign function interface.
    """
    _jax_call.check_name("bsr_gemm", backend)
    sparse_right = isinstance(b, BSRMatrix)
    if isinstance(a, BSRMatrix) == sparse_right:
        raise NotImplementedError(
            "a, b: sparsek.jax.bsr_gemm multiplies one BSRMatrix and one dense array, got "
            f"{'two' if sparse_right else 'no'} BSRMatrix; sparsek.bsr_gemm has the other products, outside jax.jit"
        )
    matrix, dense = (b, a) if sparse_right else (a, b)
    name = "a" if sparse_right else "b"
    dense = _jax_call.array(name, dense)
    if dense.ndim != 2:
        raise ValueError(f"{name}: expected 2 axes, got shape {tuple(dense.shape)}")
    if beta != 0 and c is None:
        raise ValueError(f"c: expected a matrix for beta = {beta}, got None")
    c = None if beta == 0 else _jax_call.array("c", c)
    values, transposed = _values(matrix)
    dtype = frameworks.dtype_name(values.dtype if out_dtype is None else out_dtype)
    rows, cols = matrix.shape
    _core.jax_check_bsr_gemm(
        (rows, cols, _jax_call.spec(values), transposed),
        _jax_call.spec(dense),
        sparse_right=sparse_right,
        out_dtype=dtype,
        c=None if c is None else _jax_call.spec(c),
        alpha=float(alpha),
        beta=float(beta),
        backend=_jax_call.checked_backend(backend, dense),
        device_index=_jax_call.device_index(dense),
    )
    reordered = matrix.value_indices is not None
    described = attributes(
        sparse_right=sparse_right,
        rows=rows,
        cols=cols,
        transposed=transposed,
        reordered=reordered,
        alpha=float(alpha),
        beta=float(beta),
        backend=backend_name(backend),
    )
    arrays = [values, _jax_call.wide("row_offsets", matrix.row_offsets), matrix.col_indices]
    arrays += [matrix.value_indices] if reordered else []
    arrays += [dense] if c is None else [dense, c]
    shape = (dense.shape[0], cols) if sparse_right else (rows, dense.shape[1])
    (out,) = _jax_call.run(Call("bsr_gemm", ((shape, dtype),), described), *arrays)
    return out


def _values(matrix: BSRMatrix) -> tuple[Array, bool]:
    """The values as JAX has them, and whether they are those of the transpose: its own would be a copy."""
    origin = matrix._origin if matrix._original is not None else None
    values = matrix.values if origin is None else origin.values
    return _jax_call.array("values", values), origin is not None


def _flatten_mask(mask: BlockMask) -> tuple[list[Array], Any]:
    leaves = [getattr(mask._arrays, name) for name in _MASK_ARRAYS]
    return leaves, (mask._grid, mask.num_batches, mask.num_heads)


def _unflatten_mask(fixed: Any, leaves: Any) -> BlockMask:
    grid, num_batches, num_heads = fixed
    arrays = Arrays(*leaves)
    offsets = arrays.offsets
    known = isinstance(offsets, jax.Array) and not isinstance(offsets, jax.core.Tracer)
    if known and offsets.dtype == np.int32:  # what comes out of jit, where JAX has no int64
        arrays = replace(arrays, offsets=frameworks.of(offsets).contiguous(offsets, "int64"))
    return BlockMask(grid, num_batches, num_heads, arrays)


def _flatten_matrix(matrix: BSRMatrix) -> tuple[list[Array], Any]:
    return [matrix.values], (matrix._structure, matrix._original)


def _unflatten_matrix(fixed: Any, leaves: Any) -> BSRMatrix:
    return BSRMatrix._make(leaves[0], *fixed)


jax.tree_util.register_pytree_node(BlockMask, _flatten_mask, _unflatten_mask)
jax.tree_util.register_pytree_node(BSRMatrix, _flatten_matrix, _unflatten_matrix)
