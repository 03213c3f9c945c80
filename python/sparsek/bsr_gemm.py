"""Matrix products with block-sparse operands."""

from __future__ import annotations

import sys
from typing import Any

from . import _core, frameworks
from ._arguments import backend_name, number
from .bsr_matrix import BSRMatrix

Array = Any


def bsr_gemm(
    a: Array | BSRMatrix,
    b: Array | BSRMatrix,
    *,
    out_pattern: BSRMatrix | None = None,
    alpha: float = 1.0,
    c: Array | BSRMatrix | None = None,
    beta: float = 0.0,
    out: Array | BSRMatrix | None = None,
    out_dtype: Any = None,
    backend: str | None = None,
) -> Array | BSRMatrix:
    """alpha * a b + beta * c, computing only the blocks that are there.

    BSRMatrix x dense, dense x BSRMatrix, BSRMatrix x BSRMatrix and dense x dense give a dense array; dense x dense with
    `out_pattern` gives a BSRMatrix, the product sampled at the pattern's blocks.

    Args:
        a: (M, K) dense array of any strides, or a BSRMatrix (its transpose `.T` too), float16 or bfloat16 (float32 on
            the CPU too). A torch.sparse_bsr tensor or a scipy.sparse.bsr_array is taken as a BSRMatrix.
        b: (K, N), likewise, a's dtype and device.
        out_pattern: (M, N) BSRMatrix whose structure the result has; its values are not read.
        alpha: factor of the product.
        c: (M, N) of the result's dtype, dense, or a BSRMatrix of the pattern's structure; read if beta != 0.
        beta: factor of c.
        out: where to write: a dense (M, N) array, or with `out_pattern` a BSRMatrix of its structure. May be c, and
            shares no memory with a or b.
        out_dtype: a's dtype by default, or float32. Sums are always in float32.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        An array of the library of a's (or b's) values on its current stream, or a BSRMatrix. Inside jax.jit it is
        `sparsek.jax.bsr_gemm`.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it, what was expected and what was given.
        NotImplementedError: no backend takes the problem; the message gives each one's reason.

    Source: on the CPU, dense x BSR and BSR x BSR go row by row, Gustavson, Two Fast Algorithms for Sparse Matrices (ACM
    TOMS 4, 1978), with blocks for his numbers; `sm90`'s lists of merged block rows are this library's own.
    """
    a, b = _matrix("a", a), _matrix("b", b)
    return multiply(a, b, out_pattern, alpha, c, beta, out, out_dtype, backend, for_torch=False)


def multiply(
    a: Array | BSRMatrix,
    b: Array | BSRMatrix,
    out_pattern: BSRMatrix | None,
    alpha: float,
    c: Array | BSRMatrix | None,
    beta: float,
    out: Array | BSRMatrix | None,
    out_dtype: Any,
    backend: str | None,
    for_torch: bool,
) -> Array | BSRMatrix:
    """`bsr_gemm` of an array or a BSRMatrix each; with `for_torch`, of torch tensors that no gradient flows through."""
    a_values, b_values = _values(a), _values(b)
    c = None if c is None else _matrix("c", c)
    if out_pattern is not None:
        out_pattern = _matrix("out_pattern", out_pattern)
        if not isinstance(out_pattern, BSRMatrix):
            raise TypeError(f"out_pattern: expected a sparsek.BSRMatrix, got {type(out_pattern).__name__}")
    if not for_torch:
        for name, array in (("a", a_values), ("b", b_values), ("c", None if c is None else _values(c))):
            if array is not None:
                frameworks.of(array, name).check_no_grad(name, array)
    for name, operand in (("a", a), ("b", b)):
        if len(operand.shape) != 2:
            raise ValueError(f"{name}: expected 2 axes, got shape {tuple(operand.shape)}")
    # Results are made by the library of the dense operand, the one that the caller computes with.
    like = a_values if not isinstance(a, BSRMatrix) else b_values if not isinstance(b, BSRMatrix) else a_values
    library = frameworks.of(like)
    if library.may_trace and (library.traced(a_values) or library.traced(b_values)):
        from . import jax

        for name, given in (("out_pattern", out_pattern), ("out", out)):
            frameworks.refuse_under_jit(name, given)
        return jax.bsr_gemm(a, b, alpha=alpha, c=c, beta=beta, out_dtype=out_dtype, backend=backend)
    dtype = library.dtype(like) if out_dtype is None else frameworks.dtype_name(out_dtype)
    if dtype not in ("float16", "bfloat16", "float32"):
        name = "out_dtype" if out_dtype is not None else "a" if like is a_values else "b"
        raise TypeError(f"{name}: expected float16, bfloat16 or float32, got {dtype}")

    if c is None and beta != 0:
        raise ValueError(f"c: expected a matrix for beta = {beta}, got None")
    if out is not None:
        out = _matrix("out", out)
        out_values = _values(out)
        frameworks.of(out_values, "out").check_writable("out", out_values)
        if out_dtype is not None and frameworks.of(out_values).dtype(out_values) != dtype:
            raise TypeError(
                f"out: expected dtype {dtype} (out_dtype), got {frameworks.of(out_values).dtype(out_values)}"
            )
    if out_pattern is None:
        if isinstance(out, BSRMatrix):
            raise TypeError("out: expected a dense array without out_pattern, got a BSRMatrix")
    else:
        _check_pattern(out_pattern, (a.shape[0], b.shape[1]), out)
        if out is None:
            out = out_pattern.with_values(library.empty(tuple(out_pattern.values.shape), dtype, like))

    # What has use for a plan.
    planned = backend in (None, "sm90") and frameworks.of(a_values).dtype(a_values) != "float32"
    # Positional: names would double what the way to the backend costs.
    result = _core.bsr_gemm(
        _native(a),
        _native(b),
        None if c is None or beta == 0 else _native(c),
        None if out is None else _native(out),
        dtype,
        number("alpha", alpha),
        number("beta", beta),
        a._plan(right=False) if planned and isinstance(a, BSRMatrix) else None,
        b._plan(right=True) if planned and isinstance(b, BSRMatrix) else None,
        out._plan(right=False) if planned and out_pattern is not None else None,
        backend_name(backend),
        like,
        library,
        library.exchange,
        frameworks.export,
    )
    return result if out is None else out


def _check_pattern(out_pattern: BSRMatrix, shape: tuple[int, int], out: Array | BSRMatrix | None) -> None:
    """Structures that differ in nothing but indices are not told apart: that would wait for the GPU."""
    if out_pattern.shape != shape:
        raise ValueError(f"out_pattern: expected shape {shape}, got {out_pattern.shape}")
    if out is None:
        return
    if not isinstance(out, BSRMatrix):
        raise TypeError(f"out: expected a BSRMatrix with out_pattern, got {type(out).__name__}")
    values, given = tuple(out_pattern.values.shape), tuple(out.values.shape)
    if given != values:
        raise ValueError(f"out: expected the pattern of out_pattern, values {values}, got {given}")


def _matrix(name: str, operand: Any) -> Array | BSRMatrix:
    """BSR tensors of other libraries become BSRMatrix; anything else must be an array."""
    if isinstance(operand, BSRMatrix):
        return operand
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(operand, torch.Tensor):
        return BSRMatrix.from_torch(operand) if operand.layout == torch.sparse_bsr else operand
    scipy_sparse = sys.modules.get("scipy.sparse")
    if scipy_sparse is not None and scipy_sparse.issparse(operand) and operand.format == "bsr":
        return BSRMatrix.from_scipy(operand)
    frameworks.of(operand, name)
    return operand


def _values(operand: Array | BSRMatrix) -> Array:
    return operand.values if isinstance(operand, BSRMatrix) else operand


def _native(operand: Array | BSRMatrix) -> Any:
    return operand._view() if isinstance(operand, BSRMatrix) else operand
