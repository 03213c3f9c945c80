"""Where products of the sm90 backend of bsr_gemm go, and the c that they add: of any layout, and in place."""

from __future__ import annotations

import pytest
import reference
import torch
from product_cases import at_pattern, dense, sparse, values_at

from sparsek import bsr_gemm

pytestmark = pytest.mark.gpu

LAYOUTS = ["row", "column", "offset", "strided"]
OUT_LAYOUTS = LAYOUTS[:-1]  # one axis has to be contiguous
BLOCKS = [(16, 16), (16, 128), (32, 64), (128, 128)]


def laid(values, layout):
    """A copy that lies otherwise; "offset": at an address that 16 bytes do not divide."""
    if layout == "column":
        return laid(values.mT, "row").mT
    *outer, rows, cols = values.shape
    wide = torch.full((*outer, 2 * rows, 2 * cols + 24), float("nan"), dtype=values.dtype, device=values.device)
    steps = (2, 2) if layout == "strided" else (1, 1)
    first = 0 if layout == "row" else 1
    view = wide[..., : rows * steps[0] : steps[0], first : first + cols * steps[1] : steps[1]]
    view.copy_(values)
    return view


def operands_of(product, block, free, rng):
    bm, bk = block
    a, a_full = sparse(rng, 640 // bm, 384 // bk, block, 0.3, torch.float16, "cuda")
    if product == "sparse_sparse":
        b, b_full = sparse(rng, 384 // bk, 384 // bm, (bk, bm), 0.3, torch.float16, "cuda")
        return a, b, a_full, b_full
    x = dense(rng, 384, free, torch.float16, "cuda")
    if product == "sparse_dense":
        return a, x, a_full, x
    xt = x.T.contiguous()  # k stays contiguous
    return xt, a.T, xt, a_full.T


def check_results(multiply, product, c, c_layout, out_layout, whole):
    """multiply(c, beta, out) makes 1.5 * a b + beta * c; `whole` makes what is stored a dense matrix."""
    for beta in (0.5, 0.0):
        expected, lowprec = (
            1.5 * (product[kind]) + (beta * whole(c).to(kind) if beta else 0) for kind in (torch.float64, torch.float16)
        )
        out = laid(torch.full_like(c, float("nan")), out_layout)
        multiply(laid(c, c_layout) if beta else None, beta, out)
        reference.assert_close(whole(out), expected, lowprec)
        if beta:
            in_place = laid(c, out_layout)
            multiply(in_place, beta, in_place)
            assert torch.equal(in_place, out)


def products_of(a, b):
    return {kind: reference.matmul(a, b, dtype=kind) for kind in (torch.float64, torch.float16)}


def check_dense_results(product, free, out_layout, c_layout, dtype, rng):
    for block in BLOCKS:
        a, b, a_full, b_full = operands_of(product, block, free, rng)
        c = dense(rng, a_full.shape[0], b_full.shape[1], dtype, "cuda")

        def multiply(c, beta, out, a=a, b=b):
            bsr_gemm(a, b, alpha=1.5, beta=beta, c=c, out=out, backend="sm90")

        check_results(multiply, products_of(a_full, b_full), c, c_layout, out_layout, lambda x: x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("out_layout", OUT_LAYOUTS)
@pytest.mark.parametrize("free", [64, 520])
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse", "sparse_sparse"])
def test_dense_results(product, free, out_layout, c_layout, dtype, rng):
    if product == "sparse_sparse" and free == 64:
        pytest.skip("no dense side whose length is free")
    check_dense_results(product, free, out_layout, c_layout, dtype, rng)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse"])
def test_results_of_wide_tiles(product, layout, dtype, rng):
    check_dense_results(product, 8200, layout, layout, dtype, rng)


@pytest.mark.parametrize("depth", [72, 8192])  # the deep ones share the walk over k
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("out_layout", OUT_LAYOUTS)
def test_sampled_results(out_layout, c_layout, dtype, depth, rng):
    for block in BLOCKS:
        pattern, _ = sparse(rng, 640 // block[0], 1408 // block[1], block, 0.3, torch.float16, "cuda", shuffled=True)
        a, b = dense(rng, 640, depth, torch.float16, "cuda"), dense(rng, depth, 1408, torch.float16, "cuda")
        c = values_at(pattern, dense(rng, 640, 1408, dtype, "cuda"))

        def multiply(c, beta, out, a=a, b=b, pattern=pattern):
            c = None if c is None else pattern.with_values(c)
            out = pattern.with_values(out)
            bsr_gemm(a, b, alpha=1.5, beta=beta, c=c, out=out, out_pattern=pattern, backend="sm90")

        products = {kind: at_pattern(pattern, product) for kind, product in products_of(a, b).items()}
        check_results(
            multiply,
            products,
            c,
            c_layout,
            out_layout,
            lambda x, p=pattern: torch.as_tensor(p.with_values(x).to_dense()),
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("out_layout", OUT_LAYOUTS)
@pytest.mark.parametrize(("rows", "cols", "depth"), [(200, 456, 72), (203, 461, 72), (136, 264, 8192)])
def test_results_of_two_dense(rows, cols, depth, out_layout, c_layout, dtype, rng):
    a = dense(rng, rows, depth, torch.float16, "cuda")
    b = dense(rng, depth, cols, torch.float16, "cuda", "row" if cols % 8 == 0 else "column")

    def multiply(c, beta, out):
        bsr_gemm(a, b, alpha=1.5, beta=beta, c=c, out=out, backend="sm90")

    c = dense(rng, rows, cols, dtype, "cuda")
    check_results(multiply, products_of(a, b), c, c_layout, out_layout, lambda x: x)
