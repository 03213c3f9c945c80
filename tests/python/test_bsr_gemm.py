"""Every bsr_gemm backend against the float64 product."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product_cases import PRODUCTS, broken_structures, check, dense, device_of, sparse

from sparsek import BSRMatrix, bsr_gemm

BACKENDS = [
    pytest.param("cpu", torch.float32, id="cpu-float32"),
    pytest.param("cpu", torch.float16, id="cpu-float16"),
    pytest.param("cpu", torch.bfloat16, id="cpu-bfloat16"),
    pytest.param("wmma", torch.float16, id="wmma-float16", marks=pytest.mark.gpu),
    pytest.param("wmma", torch.bfloat16, id="wmma-bfloat16", marks=pytest.mark.gpu),
    pytest.param("simt", torch.float32, id="simt-float32", marks=pytest.mark.gpu),
    pytest.param("simt", torch.float16, id="simt-float16", marks=pytest.mark.gpu),
    pytest.param("simt", torch.bfloat16, id="simt-bfloat16", marks=pytest.mark.gpu),
]
ON_EACH = ["cpu", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("wmma", "simt"))]
BLOCKS = [(1, 1), (16, 16), (32, 32), (64, 64), (128, 128), (16, 64), (64, 16), (7, 5), (96, 40), (256, 256)]


def widest_dtype(backend):
    return torch.float16 if backend == "wmma" else torch.float32


DENSE = [*PRODUCTS, "dense"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]}x{block[1]}")
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_block_shapes(product, backend, dtype, block, rng):
    check(product, backend, dtype, rng, block=block)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("backend", ON_EACH)
def test_densities(product, backend, density, rng):
    check(product, backend, torch.float16, rng, block=(16, 32), density=density, size=(6, 7, 8))


@pytest.mark.parametrize("order", ["row", "column", "strided"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("product", DENSE)
@pytest.mark.parametrize("backend", ON_EACH)
def test_orders(product, backend, transposed, order, rng):
    check(
        product,
        backend,
        torch.float16,
        rng,
        block=(16, 24 if backend != "wmma" else 48),
        order=order,
        transposed=transposed,
        shuffled=True,
    )


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (1.0, 1.0), (-0.5, 0.25), (0.0, 1.0)])
@pytest.mark.parametrize("out_dtype", [None, torch.float32])
@pytest.mark.parametrize("product", DENSE)
@pytest.mark.parametrize("backend", ON_EACH)
def test_alpha_beta(product, backend, alpha, beta, out_dtype, rng):
    check(product, backend, torch.float16, rng, block=(32, 16), alpha=alpha, beta=beta, out_dtype=out_dtype)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random(data, rng):
    extent, count = st.integers(1, 70), st.integers(1, 5)
    check(
        data.draw(st.sampled_from(DENSE)),
        "cpu",
        data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16])),
        rng,
        block=(data.draw(extent), data.draw(extent)),
        density=data.draw(st.floats(0, 1)),
        size=(data.draw(count), data.draw(count), data.draw(count)),
        order=data.draw(st.sampled_from(["row", "column", "strided"])),
        transposed=data.draw(st.booleans()),
        shuffled=data.draw(st.booleans()),
        alpha=data.draw(st.sampled_from([1.0, -2.0])),
        beta=data.draw(st.sampled_from([0.0, 0.5])),
        depth=data.draw(st.integers(1, 600)),
    )


@pytest.mark.parametrize("backend", ON_EACH)
def test_c_may_be_out(backend, rng):
    device, dtype = device_of(backend), widest_dtype(backend)
    a, a_full = sparse(rng, 3, 4, (16, 16), 0.5, dtype, device)
    b = dense(rng, 64, 20, dtype, device)
    c = dense(rng, 48, 20, dtype, device)
    expected = reference.matmul(a_full, b, 1.0, c, 2.0)
    lowprec = reference.matmul(a_full, b, 1.0, c, 2.0, dtype=dtype)
    assert bsr_gemm(a, b, c=c, beta=2.0, out=c, backend=backend) is c
    reference.assert_close(c, expected, lowprec)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_gradients_are_refused_not_lost(name, rng):
    a, _ = sparse(rng, 2, 2, (16, 16), 0.5, torch.float32, "cpu")
    operands = {"a": a, "b": dense(rng, 32, 5, torch.float32, "cpu"), "c": dense(rng, 32, 5, torch.float32, "cpu")}
    values = operands[name].values if name == "a" else operands[name]
    values.requires_grad_()
    with pytest.raises(NotImplementedError, match=rf"{name}: .*needs no gradient.*requires_grad=True"):
        bsr_gemm(**operands, beta=2.0)
    values.requires_grad_(False)
    assert bsr_gemm(**operands, beta=2.0).shape == (32, 5)


@pytest.mark.parametrize("backend", ON_EACH)
def test_empty_sides(backend):
    device, dtype = device_of(backend), widest_dtype(backend)
    empty = BSRMatrix(
        torch.zeros(0, 16, 16, dtype=dtype, device=device),
        torch.zeros(1, dtype=torch.int64, device=device),
        torch.zeros(0, dtype=torch.int32, device=device),
        (0, 32),
    )
    assert bsr_gemm(empty, torch.zeros(32, 5, dtype=dtype, device=device), backend=backend).shape == (0, 5)
    none = BSRMatrix(
        torch.zeros(0, 16, 16, dtype=dtype, device=device),
        torch.zeros(3, dtype=torch.int64, device=device),
        torch.zeros(0, dtype=torch.int32, device=device),
        (32, 32),
    )
    assert bsr_gemm(none, torch.zeros(32, 0, dtype=dtype, device=device), backend=backend).shape == (32, 0)
    assert torch.equal(
        bsr_gemm(none, torch.ones(32, 5, dtype=dtype, device=device), backend=backend),
        torch.zeros(32, 5, dtype=dtype, device=device),
    )


@pytest.mark.parametrize("backend", ON_EACH)
def test_garbage_in_unchecked_structure_touches_nothing_else(backend, rng):
    device, dtype = device_of(backend), widest_dtype(backend)
    matrix = next(broken_structures(rng, 16, device, dtype))
    x = torch.ones(64, 64, dtype=dtype, device=device)
    for result in (
        bsr_gemm(matrix, x, backend=backend),
        bsr_gemm(x, matrix, backend=backend),
        bsr_gemm(matrix, matrix, backend=backend),
    ):
        assert torch.isfinite(result).all()
    bsr_gemm(x, x, out_pattern=matrix, backend=backend)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["row", "column", "strided"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize(
    "block", [(128, 128), (64, 128), (128, 32), (112, 48)], ids=lambda block: f"{block[0]}x{block[1]}"
)
@pytest.mark.parametrize("product", PRODUCTS)
def test_wmma_large_tiles(product, block, transposed, order, rng):
    """Every order of the operands in the kernels of large tiles, which results that fill the GPU get."""
    rows, cols = 2176 // block[0], 2176 // (block[1] if product == "sampled" else block[0])
    options = {"block": block, "transposed": transposed, "order": order, "shuffled": True, "size": (rows, cols, 9)}
    dtype = torch.float16 if rng.random() < 0.5 else torch.bfloat16
    check(product, "wmma", dtype, rng, free=int(rng.choice([2040, 2048])), **options)


@pytest.mark.gpu
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse"])
def test_wmma_long_lists(product, rng):
    """More of k than a tile's queue holds at once."""
    check(product, "wmma", torch.float16, rng, block=(16, 16), size=(2, 2, 1500), density=0.6, free=200)


@pytest.mark.gpu
@pytest.mark.parametrize("product", ["sparse_dense", "dense_sparse"])
def test_wmma_runs(product, rng):
    """One CTA for four tiles, two or one, as the lists are short or long; the last run is no whole one."""
    density = np.array([0, 0.05, 0.05, 0.1, 0.5, 1] * 4)
    left = product == "sparse_dense"
    size = (24, 24, 40) if left else (24, 24, 24)  # the check makes both operands sparse, with this density
    check(
        product,
        "wmma",
        torch.float16,
        rng,
        block=(128, 128),
        size=size,
        density=density[:, None] if left else density[None],
        free=5368,
    )


def test_bsr_of_other_libraries(rng):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    matrix, full = sparse(rng, 3, 4, (8, 8), 0.5, torch.float32, "cpu")
    x = dense(rng, 32, 10, torch.float32, "cpu")
    want = bsr_gemm(matrix, x)
    assert torch.equal(bsr_gemm(full.to_sparse_bsr((8, 8)), x), want)
    from_scipy = bsr_gemm(scipy_sparse.bsr_array(full.numpy(), blocksize=(8, 8)), x.numpy())
    assert isinstance(from_scipy, np.ndarray)
    assert np.array_equal(from_scipy, want.numpy())


def errors(rng):
    a, _ = sparse(rng, 3, 4, (16, 16), 0.5, torch.float32, "cpu")
    x = dense(rng, 64, 20, torch.float32, "cpu")
    y = dense(rng, 48, 64, torch.float32, "cpu")
    odd, _ = sparse(rng, 8, 4, (8, 16), 0.5, torch.float32, "cpu")
    square, _ = sparse(rng, 4, 4, (16, 16), 0.5, torch.float32, "cpu")
    square_x = dense(rng, 64, 64, torch.float32, "cpu")
    coarse, _ = sparse(rng, 2, 2, (32, 32), 1.0, torch.float32, "cpu")
    return [
        (
            lambda: bsr_gemm(a, x, out=torch.zeros(48, 1).expand(48, 20)),
            ValueError,
            r"out: expected memory for each element, got stride 0 on axis 1",
        ),
        (
            lambda: bsr_gemm(square, square_x, out=square_x),
            ValueError,
            r"out: expected memory that is not b's, got address 0x",
        ),
        (
            lambda: bsr_gemm(square_x, square_x.clone(), out=square_x.T),
            ValueError,
            r"out: expected memory that is not a's, got address 0x",
        ),
        (lambda: bsr_gemm(a, x, alpha="two"), TypeError, r"alpha: expected a number, got 'two'"),
        (lambda: bsr_gemm(a, x, backend=3), TypeError, r"backend: expected a name .* or None, got 3"),
        (lambda: bsr_gemm(a, x[:60]), ValueError, r"b: expected 64 rows \(the columns of a\), got shape \(60, 20\)"),
        (lambda: bsr_gemm(y, x[:60]), ValueError, r"b: expected 64 rows \(the columns of a\), got shape \(60, 20\)"),
        (lambda: bsr_gemm(a, x, beta=1.0), ValueError, r"c: expected a matrix for beta = 1.0, got None"),
        (lambda: bsr_gemm(a, x, c=x, beta=1.0), ValueError, r"c: expected shape \(48, 20\), got \(64, 20\)"),
        (lambda: bsr_gemm(a, x, out=x), ValueError, r"out: expected shape \(48, 20\), got \(64, 20\)"),
        (lambda: bsr_gemm(a, x.half()), TypeError, r"b: expected the dtype of a \(float32\), got float16"),
        (lambda: bsr_gemm(a, x.double()), TypeError, r"^b: expected float16, bfloat16 or float32, got float64"),
        (lambda: bsr_gemm(y.double(), a), TypeError, r"^a: expected float16, bfloat16 or float32, got float64"),
        (lambda: bsr_gemm(a, x, out_dtype="float16"), TypeError, r"out: expected dtype float32 or that of a"),
        (lambda: bsr_gemm(a, x, out_dtype="int8"), TypeError, r"out_dtype: expected .*, got int8"),
        (lambda: bsr_gemm(a, x, alpha=float("inf")), ValueError, r"alpha: expected a finite number, got inf"),
        (
            lambda: bsr_gemm(a, x, backend="best"),
            ValueError,
            r'backend: expected one of sm90_dense, sm90, wmma, simt, cpu, got "best"',
        ),
        (lambda: bsr_gemm(a, [1.0]), TypeError, r"b: expected an array .*, got list"),
        (lambda: bsr_gemm(a, x[None]), ValueError, r"b: expected 2 axes, got shape \(1, 64, 20\)"),
        (lambda: bsr_gemm(y, x, out_pattern=y), TypeError, r"out_pattern: expected a sparsek.BSRMatrix, got Tensor"),
        (
            lambda: bsr_gemm(y, x, out_pattern=a),
            ValueError,
            r"^out_pattern: expected shape \(48, 20\), got \(48, 64\)",
        ),
        (
            lambda: bsr_gemm(square_x, square_x.clone(), out_pattern=square, out=coarse),
            ValueError,
            r"^out: expected the pattern of out_pattern, values \(\d+, 16, 16\), got \(4, 32, 32\)",
        ),
        (
            lambda: bsr_gemm(square, square_x, out_pattern=square),
            NotImplementedError,
            r"out: a product sampled .* got a block-sparse",
        ),
        (
            lambda: bsr_gemm(a, odd),
            ValueError,
            r"b: expected blocks of 16 rows \(the columns of a's blocks\), got 8x16",
        ),
    ]


@pytest.mark.parametrize("number", range(len(errors(np.random.default_rng(0)))))
def test_errors(number, rng):
    call, kind, message = errors(rng)[number]
    with pytest.raises(kind, match=message):
        call()
