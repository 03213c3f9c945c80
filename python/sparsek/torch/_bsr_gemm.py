"""`sparsek.torch.bsr_gemm` and its operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import bsr_gemm as _native_bsr_gemm
from .. import frameworks
from .._arguments import backend_name
from ..bsr_gemm import _matrix, multiply
from ..bsr_matrix import BSRMatrix
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
from ._structures import DENSE, NUM_FLAT, flatten, schema, transpose, unflatten

_OPERANDS = f"Tensor a, {schema('a')}, Tensor b, {schema('b')}, {schema('out')}"
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def bsr_gemm(
    a: Tensor | BSRMatrix,
    b: Tensor | BSRMatrix,
    *,
    out_pattern: BSRMatrix | None = None,
    alpha: float = 1.0,
    c: Tensor | BSRMatrix | None = None,
    beta: float = 0.0,
    out: Tensor | BSRMatrix | None = None,
    out_dtype: Any = None,
    backend: str | None = None,
) -> Tensor | BSRMatrix:
    """alpha * a b + beta * c as `sparsek.bsr_gemm` computes it, for torch tensors in any torch program.

    It traces under torch.compile(fullgraph=True) and torch.export with dynamic shapes, and has gradients with respect
    to a, b and c: to a BSRMatrix's `values` for the blocks that it has. They are sparsek's products themselves, in the
    operands' dtype; where a and b are both sparse, the other one is made dense for them. The first backward through a
    structure computes its transpose on the host, which waits for a GPU; so does the first product, which makes the
    kernels' plan. Both are kept while the structure's tensors live.

    Args:
        a: (M, K) dense tensor or BSRMatrix of tensors, float16, bfloat16 or float32. Under autocast a, b and c are
            cast to its dtype.
        b: (K, N), likewise, a's dtype and device.
        out_pattern: (M, N) BSRMatrix whose structure the result has; its values are not read.
        alpha: factor of the product.
        c: (M, N) of the result's dtype, dense, or a BSRMatrix of the pattern's structure; read if beta != 0.
        beta: factor of c.
        out: where to write: a dense (M, N) tensor, or with `out_pattern` a BSRMatrix of its structure; only where
            nothing is traced and no gradient is wanted.
        out_dtype: a's dtype by default, or float32. Sums are always in float32.
        backend: a name from `sparsek.backends()`; by default the first that takes the problem.

    Returns:
        (M, N) tensor, or with `out_pattern` a BSRMatrix of its structure.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it, what was expected and what was given.
        NotImplementedError: no backend takes the problem; `out` while tracing or with a gradient; a forward-mode
            derivative.
    """
    a, b = _operand("a", a), _operand("b", b)
    c = None if c is None else _operand("c", c)
    dtype = autocast_dtype(_values(a))
    if dtype is not None:
        a, b, c = (_cast(x, dtype) for x in (a, b, c))
    tensors = [_values(x) for x in (a, b, c) if x is not None]
    refuse_tangents("bsr_gemm", *tensors)
    if runs_directly(*tensors):
        return multiply(a, b, out_pattern, alpha, c, beta, out, out_dtype, backend, for_torch=True)

    if out is not None:
        raise NotImplementedError("out: not available while tracing, under vmap or where a gradient is wanted")
    if out_pattern is not None and not isinstance(out_pattern, BSRMatrix):
        raise TypeError(f"out_pattern: expected a sparsek.BSRMatrix, got {type(out_pattern).__name__}")
    if c is None and beta != 0:
        raise ValueError(f"c: expected a matrix for beta = {beta}, got None")
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        name = frameworks.dtype_name(out_dtype)
        if name not in _DTYPES:
            raise TypeError(f"out_dtype: expected float16, bfloat16 or float32, got {name}")
        out_dtype = _DTYPES[name]
    result = torch.ops.sparsek.bsr_gemm(
        _values(a),
        *flatten(a),
        _values(b),
        *flatten(b),
        *(DENSE if out_pattern is None else flatten(out_pattern)),
        alpha,
        None if c is None else _values(c),
        beta,
        out_dtype,
        backend_name(backend),
    )
    return result if out_pattern is None else out_pattern.with_values(result)


def _operand(name: str, operand: Any) -> Tensor | BSRMatrix:
    if not isinstance(operand, BSRMatrix):
        check_tensor(name, operand)
        return _matrix(name, operand) if operand.layout == torch.sparse_bsr else operand
    check_tensor(f"{name}.values", operand.values)
    return operand


def _values(operand: Tensor | BSRMatrix) -> Tensor:
    return operand.values if isinstance(operand, BSRMatrix) else operand


def _cast(operand: Tensor | BSRMatrix | None, dtype: torch.dtype) -> Tensor | BSRMatrix | None:
    if isinstance(operand, BSRMatrix):
        values = cast(operand.values, dtype)
        return operand if values is operand.values else operand.with_values(values)
    return None if operand is None else cast(operand, dtype)


def _parts(arguments: tuple) -> tuple:
    """The arguments of _OPERANDS, a and b with what they are besides their values, then the others."""
    b_at, out_at = 1 + NUM_FLAT, 2 + 2 * NUM_FLAT
    end = out_at + NUM_FLAT
    a, b = arguments[0], arguments[b_at]
    return a, arguments[1:b_at], b, arguments[b_at + 1 : out_at], arguments[out_at:end], *arguments[end:]


def _kernel(*arguments: Any) -> Tensor:
    a, a_flat, b, b_flat, out_flat, alpha, c, beta, out_dtype, backend = _parts(arguments)
    a, b = unflatten(a.detach(), a_flat), unflatten(b.detach(), b_flat)
    pattern = None
    if out_flat[-1]:
        # The values are not read: one element stands for all of them.
        values = _values(a).new_empty(()).expand(out_flat[1].shape[0], *out_flat[-1][2:])
        pattern = unflatten(values, out_flat)
    if c is not None:
        c = c.detach() if pattern is None else pattern.with_values(c.detach())
    result = _native_bsr_gemm(
        a, b, out_pattern=pattern, alpha=alpha, c=c, beta=beta, out_dtype=out_dtype, backend=backend or None
    )
    return _values(result)


def _fake(*arguments: Any) -> Tensor:
    a, (*_, a_sizes), b, (*_, b_sizes), out_flat, _, _, _, out_dtype, _ = _parts(arguments)
    for name, x, sizes in (("a", a, a_sizes), ("b", b, b_sizes)):
        if not sizes and x.ndim != 2:
            raise ValueError(f"{name}: expected 2 axes, got shape {tuple(x.shape)}")
    if out_flat[-1]:
        shape = (out_flat[1].shape[0], *out_flat[-1][2:])
    else:
        shape = (a_sizes[0] if a_sizes else a.shape[0], b_sizes[1] if b_sizes else b.shape[1])
    return a.new_empty(shape, dtype=out_dtype or a.dtype)


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    a, (*a_arrays, a_sizes), b, (*b_arrays, b_sizes), (*out_arrays, out_sizes), alpha, c, beta, _, _ = _parts(inputs)
    ctx.save_for_backward(a, *a_arrays, b, *b_arrays, *out_arrays)
    ctx.sizes = a_sizes, b_sizes, out_sizes
    ctx.alpha, ctx.beta, ctx.c_dtype = alpha, beta, None if c is None else c.dtype


def _backward(ctx: Any, grad: Tensor) -> tuple:
    b_at, out_at = NUM_FLAT, 2 * NUM_FLAT
    saved, (a_sizes, b_sizes, out_sizes) = ctx.saved_tensors, ctx.sizes
    needs = [ctx.needs_input_grad[place] for place in (0, 1 + NUM_FLAT)]
    grads = torch.ops.sparsek.bsr_gemm_backward(
        *(*saved[:b_at], a_sizes, *saved[b_at:out_at], b_sizes, *saved[out_at:], out_sizes), grad, ctx.alpha, needs
    )
    grad_a, grad_b = (each if needed else None for each, needed in zip(grads, needs, strict=True))
    grad_c = None if ctx.c_dtype is None else (ctx.beta * grad).to(ctx.c_dtype)
    nothing = (None,) * NUM_FLAT
    return grad_a, *nothing, grad_b, *nothing, *nothing, None, grad_c, None, None, None


def _backward_kernel(*arguments: Any) -> tuple[Tensor, ...]:
    a, a_flat, b, b_flat, out_flat, grad, alpha, needs = _parts(arguments)
    a, b = unflatten(a.detach(), a_flat), unflatten(b.detach(), b_flat)
    grad = unflatten(grad.detach().to(_values(a).dtype), out_flat)
    results = [_values(x).new_empty(0) for x in (a, b)]
    if needs[0]:  # grad b^T, at a's blocks
        pattern = a if isinstance(a, BSRMatrix) else None
        other = transpose(_dense(b) if pattern is not None else b)
        results[0] = _values(_native_bsr_gemm(grad, other, out_pattern=pattern, alpha=alpha))
    if needs[1]:  # a^T grad, at b's blocks
        pattern = b if isinstance(b, BSRMatrix) else None
        other = transpose(_dense(a) if pattern is not None else a)
        results[1] = _values(_native_bsr_gemm(other, grad, out_pattern=pattern, alpha=alpha))
    return tuple(results)


def _dense(operand: Tensor | BSRMatrix) -> Tensor:
    return operand.to_dense() if isinstance(operand, BSRMatrix) else operand


def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    a, _, b, _, _, _, _, needs = _parts(arguments)
    return tuple(x.new_empty(x.shape if needed else 0) for x, needed in zip((a, b), needs, strict=True))


define(
    f"bsr_gemm({_OPERANDS}, float alpha, Tensor? c, float beta, ScalarType? out_dtype, str backend) -> Tensor",
    _kernel,
    _fake,
)
define(
    f"bsr_gemm_backward({_OPERANDS}, Tensor grad, float alpha, bool[] needs) -> (Tensor, Tensor)",
    _backward_kernel,
    _backward_fake,
)
torch.library.register_autograd("sparsek::bsr_gemm", _backward, setup_context=_setup_context, lib=LIBRARY)
refuse_second_derivatives("bsr_gemm")
