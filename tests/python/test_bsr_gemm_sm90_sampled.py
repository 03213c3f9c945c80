"""Products of two dense operands by the sm90 backend of bsr_gemm, at the blocks of a pattern or whole, against the
float64 product."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from product_cases import at_pattern, check, dense, of_lengths, sparse

from sparsek import bsr_gemm

pytestmark = pytest.mark.gpu


def check_sampled(result, a, b):
    expected, lowprec = (
        at_pattern(result, reference.matmul(a, b, dtype=dtype)) for dtype in (torch.float64, torch.float16)
    )
    reference.assert_close(result.to_dense(), expected, lowprec)


@pytest.mark.parametrize("depth", [8, 64, 1000])
@pytest.mark.parametrize("orders", ["row row", "row column", "column row", "column column"])
@pytest.mark.parametrize("block", [(16, 16), (16, 128), (32, 32), (64, 64), (128, 128)], ids=str)
def test_sampled_orders(block, orders, depth, rng):
    """Each operand contiguous along k or across it, and a depth that no tile divides."""
    bm, bn = block
    pattern, _ = sparse(rng, 640 // bm, 1408 // bn, block, 0.3, torch.float16, "cuda", shuffled=True)
    a, b = (
        dense(rng, *shape, torch.float16, "cuda", order)
        for shape, order in zip(((640, depth), (depth, 1408)), orders.split(), strict=True)
    )
    check_sampled(bsr_gemm(a, b, out_pattern=pattern, backend="sm90"), a, b)


@pytest.mark.parametrize("blocks_in_row", [1, 3, 6, 9, 20, "any"])
@pytest.mark.parametrize(("block", "size"), [(128, (64, 24)), (32, (240, 96))], ids=str)
def test_sampled_of_many_tiles(block, size, blocks_in_row, rng):
    """One round of tiles or several, of one unit of columns, of two and of three, at rows that are equal and not."""
    counts = rng.integers(0, size[1] + 1, size[0]) if blocks_in_row == "any" else np.full(size[0], blocks_in_row)
    pattern = of_lengths(rng, counts, size[1], block, "cuda")
    a, b = (dense(rng, *shape, torch.float16, "cuda") for shape in ((size[0] * block, 72), (72, size[1] * block)))
    pattern.values.fill_(float("nan"))
    bsr_gemm(a, b, out_pattern=pattern, out=pattern, backend="sm90")
    check_sampled(pattern, a, b)


DEPTHS = [2048, 8200]


@pytest.mark.parametrize(
    ("block", "size", "blocks_in_row", "depth"),
    [
        (128, (20, 24), 1, 2048),
        (128, (20, 24), 1, 8200),
        (128, (20, 24), 3, 8200),
        (128, (23, 24), 2, 16392),  # tiles of two units of columns
        (128, (15, 24), 3, 32776),  # and of three
        (64, (16, 18), "any", 4096),
        (16, (56, 56), "any", 8192),
    ],
)
def test_tiles_shared_along_k(block, size, blocks_in_row, depth, rng):
    """So few tiles that several CTAs take each."""
    counts = rng.integers(0, size[1] + 1, size[0]) if blocks_in_row == "any" else np.full(size[0], blocks_in_row)
    pattern = of_lengths(rng, counts, size[1], block, "cuda")
    a, b = (dense(rng, *shape, torch.float16, "cuda") for shape in ((size[0] * block, depth), (depth, size[1] * block)))
    pattern.values.fill_(float("nan"))
    bsr_gemm(a, b, out_pattern=pattern, out=pattern, backend="sm90")
    check_sampled(pattern, a, b)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("out_dtype", "beta"), [(None, 0.0), (torch.float32, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("block", [(16, 16), (32, 128), (64, 64), (128, 128)], ids=str)
def test_shared_tiles_of_all_blocks(block, dtype, out_dtype, beta, depth, rng):
    """Of blocks of all kinds, in results of all kinds."""
    options = {"out_dtype": out_dtype, "beta": beta, "alpha": 0.5, "depth": depth, "density": 0.3, "transposed": True}
    size = (640 // block[0], 1408 // block[1], 1)
    check("sampled", "sm90", dtype, rng, block=block, size=size, shuffled=True, **options)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(("rows", "free"), [(8, 8), (136, 1352), (1032, 2312)])
def test_two_dense_shared_along_k(rows, free, order, depth, rng):
    options = {"order": order, "out_dtype": torch.float32, "beta": 0.5, "free": free, "depth": depth}
    check("dense", "sm90", torch.float16, rng, block=(8, 8), size=(rows // 8, 1, 1), **options)


def test_shared_tiles_have_the_same_bits(rng):
    """Again and again, in a graph, and on several streams at a time, of which one is of another priority."""
    pattern = of_lengths(rng, np.full(24, 2), 16, 128, "cuda")
    a, b = (dense(rng, *shape, torch.float16, "cuda") for shape in ((3072, 8192), (8192, 2048)))
    out = bsr_gemm(a, b, out_pattern=pattern, backend="sm90")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bsr_gemm(a, b, out_pattern=pattern, out=out, backend="sm90")
    a.normal_()
    first = bsr_gemm(a, b, out_pattern=pattern, backend="sm90")
    check_sampled(first, a, b)
    streams = [torch.cuda.Stream(priority=priority) for priority in (0, 0, -1)]
    for _ in range(10):
        out.values.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        results = [out]
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(bsr_gemm(a, b, out_pattern=pattern, backend="sm90"))
        torch.cuda.synchronize()
        assert all(torch.equal(result.values, first.values) for result in results)
