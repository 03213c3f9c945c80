"""The sm90 backend of bsr_gemm against the float64 product: all of its kernels, and what it declines."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from product_cases import (
    ONE_SPARSE,
    PRODUCTS,
    broken_structures,
    check,
    check_in_a_graph,
    dense,
    sparse,
    zipf,
)

from sparsek import BSRMatrix, bsr_gemm

pytestmark = pytest.mark.gpu

BLOCKS = [(rows, cols) for rows in (16, 32, 64, 128) for cols in (16, 32, 64, 128)]


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]}x{block[1]}")
@pytest.mark.parametrize("product", PRODUCTS)
def test_blocks(product, block, dtype, transposed, order, rng):
    options = {"block": block, "transposed": transposed, "order": order, "shuffled": True, "size": (11, 11, 9)}
    check(product, "sm90", dtype, rng, free=264, depth=200, **options)


@pytest.mark.parametrize("out_dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("free", [264, 2048])
@pytest.mark.parametrize("rows", [32, 64, 128])
def test_lines_of_two_rows(rows, free, out_dtype, rng):
    """Rows of 32 elements are copied by two where they lie side by side, as these do not: the same bits."""
    matrix, full = sparse(rng, 4096 // rows, 9, (rows, 32), 0.3, torch.float16, "cuda")
    apart = torch.full((matrix.nnz, rows, 40), float("nan"), dtype=torch.float16, device="cuda")
    apart[..., :32] = matrix.values
    strided = matrix.with_values(apart[..., :32])
    for x in (dense(rng, 288, free, torch.float16, "cuda"), dense(rng, 288, free, torch.float16, "cuda", "column")):
        expected, lowprec = (reference.matmul(full, x, 1.0, None, 0.0, dtype=t) for t in (torch.float64, torch.float16))
        results = [bsr_gemm(m, x, out_dtype=out_dtype, backend="sm90") for m in (matrix, strided)]
        reference.assert_close(results[0], expected, lowprec)
        assert torch.equal(*results)
        across = [bsr_gemm(x.T, m.T, out_dtype=out_dtype, backend="sm90") for m in (matrix, strided)]
        reference.assert_close(across[0], expected.T, lowprec.T)
        assert torch.equal(*across)


@pytest.mark.parametrize(("free", "order"), [(8, "row"), (1, "column"), (45, "column"), (1000, "row"), (512, "column")])
@pytest.mark.parametrize("block", [(16, 16), (32, 64), (128, 128)], ids=lambda block: f"{block[0]}x{block[1]}")
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_ragged(product, block, free, order, rng):
    if free % 8 and product == "dense_sparse":
        order = "row"  # the axis of k stays the contiguous one
    check(product, "sm90", torch.float16, rng, block=block, free=free, order=order, size=(5, 5, 6))


@pytest.mark.parametrize("density", [0.0, 0.001, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", PRODUCTS)
def test_densities(product, block, density, rng):
    size = (1500 // block, 1500 // block, 1000 // block)
    check(product, "sm90", torch.float16, rng, block=(block, block), density=density, size=size, free=2048, depth=136)


@pytest.mark.parametrize(("free", "order"), [(320, "row"), (264, "row"), (520, "column"), (261, "column")])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_last_tiles_of_few_columns(product, block, free, order, rng):
    """Of which no more is copied than there is; enough rows for tiles of 256 columns, or of 128."""
    if free % 8 and product == "dense_sparse":
        order = "row"  # the axis of k stays the contiguous one
    for rows in (16384, 4096):
        size = (rows // block, rows // block, 256 // block)
        check(product, "sm90", torch.float16, rng, block=(block, block), density=0.2, size=size, free=free, order=order)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (1.0, 1.0), (-0.5, 0.25), (0.0, 1.0)])
@pytest.mark.parametrize("out_dtype", [None, torch.float32])
@pytest.mark.parametrize("free", [45, 1024])
@pytest.mark.parametrize("product", PRODUCTS)
def test_alpha_beta(product, free, alpha, beta, out_dtype, rng):
    if free == 45 and product not in ONE_SPARSE:
        pytest.skip("no dense side whose length is free")
    order = "column" if product == "sparse_dense" else "row"  # k contiguous
    options = {"alpha": alpha, "beta": beta, "out_dtype": out_dtype, "order": order, "density": 0.2, "depth": 72}
    check(product, "sm90", torch.float16, rng, block=(32, 32), free=free, size=(9, 9, 7), **options)


@pytest.mark.parametrize("block", [16, 64, 128])
def test_unequal_rows_in_a_graph(block, rng):
    check_in_a_graph(zipf(rng, 40, 20, block, "cuda"), dense(rng, 20 * block, 520, torch.float16, "cuda"))


def check_all_is_written(matrix, full, x):
    lowprec = reference.matmul(full, x, 1.0, None, 0.0, dtype=torch.float16)
    expected = reference.matmul(full, x, 1.0, None, 0.0)
    out = torch.full_like(lowprec, float("nan"))
    bsr_gemm(matrix, x, out=out, backend="sm90")
    reference.assert_close(out, expected, lowprec)
    transposed = torch.full_like(lowprec.T.contiguous(), float("nan"))
    bsr_gemm(x.T.contiguous(), matrix.T, out=transposed, backend="sm90")
    reference.assert_close(transposed, expected.T, lowprec.T)


@pytest.mark.parametrize(
    ("block", "size", "free"),
    [(16, (160, 20), 3600), (64, (80, 20), 1104), (128, (40, 20), 1104), (128, (3, 20), 18000), (64, (68, 64), 9000)],
)
def test_unequal_rows_of_many_tiles(block, size, free, rng):
    """More tiles than SMs, which are shared out by a schedule."""
    matrix = zipf(rng, *size, block, "cuda")
    x = dense(rng, size[1] * block, free, torch.float16, "cuda")
    check_all_is_written(matrix, torch.as_tensor(matrix.to_dense()), x)


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("free", [1792, 2304])
@pytest.mark.parametrize("rows", [2560, 5120])
@pytest.mark.parametrize("block", [16, 32])
def test_narrow_panels(block, rows, free, order, rng):
    """Some panels of 192 columns, or all of them, so that no SM is idle in the last round."""
    matrix, full = sparse(rng, rows // block, 640 // block, (block, block), 0.3, torch.float16, "cuda")
    check_all_is_written(matrix, full, dense(rng, 640, free, torch.float16, "cuda", order))
    unequal = zipf(rng, rows // block, 640 // block, block, "cuda")
    check_all_is_written(unequal, torch.as_tensor(unequal.to_dense()), dense(rng, 640, free, torch.float16, "cuda"))


@pytest.mark.parametrize("free", [1560, 2048, 2304])
@pytest.mark.parametrize(("block", "size"), [(64, (40, 20)), (16, (512, 320)), (128, (64, 64))], ids=str)
def test_panels_abreast(block, size, free, rng):
    """Two and four panels of 256 columns are walked abreast, with and without some left over, dealt and scheduled."""
    matrix, full = sparse(rng, *size, (block, block), 0.3, torch.float16, "cuda")
    check_all_is_written(matrix, full, dense(rng, size[1] * block, free, torch.float16, "cuda"))


@pytest.mark.parametrize("options", [{}, {"free": 45}, {"beta": 0.5, "out_dtype": torch.float32}], ids=str)
@pytest.mark.parametrize("block", [(16, 32), (32, 32), (64, 16)], ids=str)
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_more_rows_than_are_grouped_at_once(product, block, options, rng):
    """Rows are grouped by what they share within windows of 512 block rows, of which the last is not full."""
    size = (1127, 20, 5) if product == "sparse_dense" else (5, 1127, 20)
    order = "column" if product == "sparse_dense" else "row"  # k contiguous
    options = {"free": 264, "order": order, "shuffled": True, **options}
    check(product, "sm90", torch.float16, rng, block=block, size=size, density=0.1, **options)


@pytest.mark.parametrize("options", [{}, {"beta": 0.5, "out_dtype": torch.float32}, {"transposed": True}], ids=str)
@pytest.mark.parametrize("free", [1000, 776])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_long_rows(product, block, free, options, rng):
    """A tile of the longest rows is more than a CTA's share of all: several CTAs add it up. Last tiles are short."""
    blocks = 5120 // block
    density = rng.choice([0, 0.01, 0.05], blocks)
    density[[blocks // 7, blocks - 1]] = 1
    density[blocks // 3] = 0.5
    density = density[:, None] if product == "sparse_dense" else density[None]
    check(
        product,
        "sm90",
        torch.float16,
        rng,
        block=(block, block),
        size=(blocks, blocks, blocks),
        density=density,
        free=free,
        **options,
    )


def test_long_rows_in_a_graph(rng):
    """The sums that CTAs leave to others are found by every replay, and are the same."""
    rows = np.concatenate([np.zeros(64, np.int64), np.arange(1, 64)])
    columns = torch.from_numpy(np.concatenate([np.arange(64), np.arange(1, 64)]).astype(np.int32)).cuda()
    offsets = torch.from_numpy(np.searchsorted(rows, np.arange(65))).cuda()
    values = torch.from_numpy(rng.standard_normal((127, 128, 128), dtype=np.float32)).cuda().half()
    matrix = BSRMatrix(values, offsets, columns, (8192, 8192))  # one full row, and a diagonal
    check_in_a_graph(matrix, dense(rng, 8192, 1024, torch.float16, "cuda"))


@pytest.mark.parametrize("block", [16, 32, 128])
def test_garbage_in_unchecked_structure(block, rng):
    x = torch.ones(4 * block, 4 * block, device="cuda", dtype=torch.float16)
    for matrix in broken_structures(rng, block, "cuda"):
        assert torch.isfinite(bsr_gemm(matrix, x, backend="sm90")).all()
        assert torch.isfinite(bsr_gemm(x, matrix, backend="sm90")).all()
        assert torch.isfinite(bsr_gemm(matrix, matrix, backend="sm90")).all()
        bsr_gemm(x, x, out_pattern=matrix, backend="sm90")
        torch.cuda.synchronize()
    wide = torch.ones(4 * block, 34000, device="cuda", dtype=torch.float16)  # more tiles than SMs
    assert torch.isfinite(bsr_gemm(matrix, wide, backend="sm90")).all()


def test_says_why_not(rng):
    a, _ = sparse(rng, 3, 4, (32, 32), 0.5, torch.float16, "cuda")
    odd, _ = sparse(rng, 3, 4, (32, 48), 0.5, torch.float16, "cuda")
    wide, _ = sparse(rng, 3, 4, (32, 32), 0.5, torch.float32, "cuda")
    x = dense(rng, 128, 64, torch.float16, "cuda")
    y = dense(rng, 192, 64, torch.float16, "cuda")
    for call, message in (
        (lambda: bsr_gemm(wide, x.float(), backend="sm90"), "dtype is float32"),
        (lambda: bsr_gemm(odd, y, backend="sm90"), "a has blocks of 32x48, expected 16, 32, 64 or 128"),
        (lambda: bsr_gemm(a, x[:, :45].contiguous(), backend="sm90"), "b has .* multiples of 2 bytes, expected 16"),
        (lambda: bsr_gemm(a, x[:, ::2], backend="sm90"), "b has no contiguous axis"),
        (lambda: bsr_gemm(x[:96], y.T, out_pattern=odd, backend="sm90"), "out has blocks of 32x48"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()


@pytest.mark.parametrize("blocks", [(16, 32, 64), (128, 16, 32), (64, 128, 128), (32, 64, 16)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_two_sparse(transposed, blocks, rng):
    """Blocks of a, of k and of b that differ, in every order of the values."""
    bm, bk, bn = blocks
    a, a_full = sparse(rng, 384 // bm, 640 // bk, (bm, bk), 0.3, torch.float16, "cuda", transposed=transposed[0])
    b, b_full = sparse(rng, 640 // bk, 512 // bn, (bk, bn), 0.3, torch.float16, "cuda", transposed=transposed[1])
    lowprec = reference.matmul(a_full, b_full, 1.0, None, 0.0, dtype=torch.float16)
    expected = reference.matmul(a_full, b_full, 1.0, None, 0.0)
    reference.assert_close(bsr_gemm(a, b, backend="sm90"), expected, lowprec)


@pytest.mark.parametrize("density", [0.02, 0.4])
@pytest.mark.parametrize(("block", "size"), [((64, 64), (75, 77, 7)), ((128, 64), (39, 38, 7))], ids=str)
def test_two_sparse_of_more_tiles_than_fit(block, size, density, rng):
    """CTAs that compute several tiles each, of which many have no common block."""
    check("sparse_sparse", "sm90", torch.float16, rng, block=block, size=size, density=density)


@pytest.mark.parametrize("block", [64, 128])
def test_two_sparse_of_unequal_rows(block, rng):
    """CTAs take tiles as they get ready, the longest rows first: the same bits whoever takes which, in a graph and on
    several streams at a time too."""
    a = zipf(rng, 5120 // block, 5120 // block, block, "cuda")
    b = zipf(rng, 5120 // block, 5120 // block, block, "cuda").T
    out = bsr_gemm(a, b, backend="sm90")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bsr_gemm(a, b, out=out, backend="sm90")
    a.values.normal_()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(3):
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(bsr_gemm(a, b, backend="sm90"))
        torch.cuda.synchronize()
        assert all(torch.equal(result, out) for result in results)
    a_full, b_full = (torch.as_tensor(matrix.to_dense()) for matrix in (a, b))
    lowprec = reference.matmul(a_full, b_full, 1.0, None, 0.0, dtype=torch.float16)
    reference.assert_close(out, reference.matmul(a_full, b_full, 1.0, None, 0.0), lowprec)


@pytest.mark.parametrize("block", [64, 128])
def test_two_sparse_of_a_long_k(block, rng):
    size = (3, 4, 1100)
    check("sparse_sparse", "sm90", torch.float16, rng, block=(block, block), size=size, density=0.05)


@pytest.mark.parametrize("density", [0.001, 0.3])
def test_two_sparse_of_more_blocks_than_are_listed_at_once(density, rng):
    check("sparse_sparse", "sm90", torch.float16, rng, block=(16, 16), size=(9, 10, 2100), density=density)


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    ("rows", "free", "depth"), [(8, 8, 8), (136, 1352, 264), (1000, 264, 72), (1000, 4096, 72), (2816, 4600, 72)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("out_dtype", "beta"), [(None, 0.0), (torch.float32, 0.5)])
def test_two_dense(out_dtype, beta, dtype, rows, free, depth, order, rng):
    options = {"order": order, "out_dtype": out_dtype, "beta": beta, "free": free, "depth": depth}
    check("dense", "sm90", dtype, rng, block=(8, 8), size=(rows // 8, 1, 1), **options)


def test_two_sparse_and_sampled_in_a_graph(rng):
    a, _ = sparse(rng, 5, 4, (64, 64), 0.5, torch.float16, "cuda")
    b, _ = sparse(rng, 4, 6, (64, 64), 0.5, torch.float16, "cuda")
    x, y = a.to_dense(), b.to_dense()
    pattern, _ = sparse(rng, 5, 6, (64, 64), 0.5, torch.float16, "cuda")
    out, sampled = bsr_gemm(a, b, backend="sm90"), bsr_gemm(x, y, out_pattern=pattern, backend="sm90")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bsr_gemm(a, b, out=out, backend="sm90")
        bsr_gemm(x, y, out_pattern=pattern, out=sampled, backend="sm90")
    for values in (a.values, b.values, x, y):
        values.normal_()
    out.fill_(float("nan"))
    sampled.values.fill_(float("nan"))
    graph.replay()
    assert torch.equal(out, bsr_gemm(a, b, backend="sm90"))
    assert torch.equal(sampled.values, bsr_gemm(x, y, out_pattern=pattern, backend="sm90").values)
