"""The sm90_dense backend of bsr_gemm against the float64 product: the GEMM, and dense copies of sparse operands."""

from __future__ import annotations

import pytest
import reference
import torch
from product_cases import broken_structures, check, dense, sparse

from sparsek import bsr_gemm

pytestmark = pytest.mark.gpu

DENSE = "sm90_dense"
ORDERS = ["row", "column"]


def assert_product(result, a, b, alpha=1.0, c=None, beta=0.0):
    lowprec = reference.matmul(a, b, alpha, c, beta, dtype=a.dtype)
    reference.assert_close(result, reference.matmul(a, b, alpha, c, beta), lowprec)


@pytest.mark.parametrize("out_order", ORDERS)
@pytest.mark.parametrize("b_order", ORDERS)
@pytest.mark.parametrize("a_order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(8, 8, 8), (200, 136, 72), (1160, 1288, 264), (4104, 4360, 40)], ids=str)
def test_two_dense(shape, dtype, a_order, b_order, out_order, rng):
    m, n, k = shape
    a, b = dense(rng, m, k, dtype, "cuda", a_order), dense(rng, k, n, dtype, "cuda", b_order)
    out = torch.full((n, m), float("nan"), device="cuda", dtype=dtype).T
    if out_order == "row":
        out = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
    assert_product(bsr_gemm(a, b, out=out, backend=DENSE), a, b)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (1.0, 1.0), (-0.5, 0.25), (0.0, 1.0)])
@pytest.mark.parametrize("size", [264, 4096])
def test_alpha_beta(size, alpha, beta, order, rng):
    a, b = dense(rng, size, 136, torch.float16, "cuda"), dense(rng, 136, size, torch.float16, "cuda")
    c = dense(rng, size, size, torch.float16, "cuda", order)
    out = torch.empty_like(c)
    result = bsr_gemm(a, b, alpha=alpha, beta=beta, c=c, out=out, backend=DENSE)
    assert_product(result, a, b, alpha, c, beta)
    bsr_gemm(a, b, alpha=alpha, beta=beta, c=c, out=c, backend=DENSE)
    assert torch.equal(c, result)


@pytest.mark.parametrize(("m", "n"), [(1, 8), (8, 1), (1, 1), (45, 8)])
def test_single_rows_and_columns(m, n, rng):
    a, b = dense(rng, m, 64, torch.float16, "cuda"), dense(rng, 64, n, torch.float16, "cuda", "column")
    out = torch.full((m, 8), float("nan"), device="cuda", dtype=torch.float16)[:, :n]
    assert_product(bsr_gemm(a, b, out=out, backend=DENSE), a, b)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("block", [(16, 16), (32, 64), (128, 16), (128, 128)], ids=lambda b: f"{b[0]}x{b[1]}")
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse", "sparse_sparse"])
def test_copies(product, block, dtype, transposed, order, rng):
    options = {"block": block, "transposed": transposed, "order": order, "shuffled": True, "size": (11, 11, 9)}
    check(product, DENSE, dtype, rng, free=264, **options)


@pytest.mark.parametrize("density", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse"])
def test_densities(product, block, density, rng):
    size = (1500 // block, 1500 // block, 1000 // block)
    check(product, DENSE, torch.float16, rng, block=(block, block), density=density, size=size, free=2048)


def test_choice_and_bits(rng):
    """A dense copy is made only where it is asked for, even where no block is absent; the same bits each time."""
    a, full = sparse(rng, 128, 128, (16, 16), 1.0, torch.float16, "cuda")
    x = dense(rng, 2048, 4096, torch.float16, "cuda")
    assert torch.equal(bsr_gemm(a, x), bsr_gemm(a, x, backend="sm90"))
    copied = bsr_gemm(a, x, backend=DENSE)
    assert torch.equal(copied, bsr_gemm(a, x, backend=DENSE))
    assert_product(copied, full, x)


def test_graph(rng):
    a, _ = sparse(rng, 40, 30, (16, 32), 0.6, torch.float16, "cuda")
    x = dense(rng, 960, 520, torch.float16, "cuda")
    out = bsr_gemm(a, x, backend=DENSE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bsr_gemm(a, x, out=out, backend=DENSE)
    for _ in range(2):
        a.values.normal_()
        x.normal_()
        out.fill_(float("nan"))
        graph.replay()
        assert_product(out, torch.as_tensor(a.to_dense()), x)


@pytest.mark.parametrize("block", [16, 32, 128])
def test_garbage_in_unchecked_structure(block, rng):
    x = torch.ones(4 * block, 4 * block, device="cuda", dtype=torch.float16)
    for matrix in broken_structures(rng, block, "cuda"):
        assert torch.isfinite(bsr_gemm(matrix, x, backend=DENSE)).all()
        assert torch.isfinite(bsr_gemm(x, matrix, backend=DENSE)).all()


def test_says_why_not(rng):
    x = dense(rng, 128, 64, torch.float16, "cuda")
    y = dense(rng, 64, 128, torch.float16, "cuda")
    pattern, _ = sparse(rng, 4, 4, (32, 32), 0.5, torch.float16, "cuda")
    for call, message in (
        (lambda: bsr_gemm(x, y, out_dtype=torch.float32, backend=DENSE), "out_dtype is float32, expected float16"),
        (lambda: bsr_gemm(x, y[:, :45].contiguous(), backend=DENSE), "b has .* multiples of 2 bytes, expected 16"),
        (lambda: bsr_gemm(x, y, out_pattern=pattern, backend=DENSE), "out is block-sparse"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()
