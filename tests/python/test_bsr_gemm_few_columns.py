"""Products of sm90 with few columns against the float64 product: a kernel of its own where there are rows enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from product_cases import ONE_SPARSE, broken_structures, check, check_in_a_graph, dense, sparse, zipf

from sparsek import BSRMatrix, bsr_gemm

pytestmark = pytest.mark.gpu

BLOCKS = [(rows, cols) for rows in (16, 32, 64, 128) for cols in (16, 32, 64, 128)]
# Squares of 64 have a kernel of their own from 193 columns on.
BLOCKS_AND_FREE = [(block, 136) for block in BLOCKS] + [(block, 248) for block in BLOCKS if min(block) >= 64]


@pytest.mark.parametrize("free", [8, 16, 64, 136, 256])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_columns(product, block, free, rng):
    """Tiles that the CTAs of a cluster share."""
    size = (2048 // block, 2048 // block, 1024 // block)
    check(product, "sm90", torch.float16, rng, block=(block, block), density=0.1, size=size, free=free)


@pytest.mark.parametrize("free", [8, 64, 72, 128, 256, 328])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_columns_of_many_rows(product, block, free, rng):
    """Tiles of 64 and 128 columns, an SM for each or for a half of its list."""
    size = (8192 // block, 8192 // block, 512 // block)
    check(product, "sm90", torch.float16, rng, block=(block, block), density=0.2, size=size, free=free)


@pytest.mark.parametrize("out_dtype", [None, torch.float32], ids=["16 bits", "float32"])
@pytest.mark.parametrize("free", [64, 120, 248, 256, 328])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_columns_added_to_others(product, block, free, out_dtype, rng):
    size = (8192 // block, 8192 // block, 512 // block)
    options = {"density": 0.2, "free": free, "alpha": -0.5, "beta": 0.5, "out_dtype": out_dtype}
    check(product, "sm90", torch.float16, rng, block=(block, block), size=size, **options)


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("block", "free"), BLOCKS_AND_FREE, ids=lambda x: f"{x[0]}x{x[1]}" if isinstance(x, tuple) else None
)
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_columns_of_all_orders(product, block, free, dtype, transposed, order, rng):
    options = {"block": block, "transposed": transposed, "order": order, "shuffled": True, "density": 0.3}
    size = (4224 // block[0], 4224 // block[0], 512 // block[1])
    check(product, "sm90", dtype, rng, free=free, size=size, **options)


@pytest.mark.parametrize(
    ("free", "order"),
    [
        (1, "column"),
        (2, "column"),
        (40, "column"),
        (45, "column"),
        (8, "row"),
        (24, "row"),
        (200, "row"),
        (255, "column"),
    ],
)
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_ragged_columns(product, block, free, order, rng):
    if free % 8 and product == "dense_sparse":
        order = "row"  # the axis of k stays the contiguous one
    size = (4096 // block, 4096 // block, 512 // block)
    check(product, "sm90", torch.float16, rng, block=(block, block), free=free, order=order, size=size)


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("free", [1, 16, 64, 136])
@pytest.mark.parametrize("block", [(16, 16), (16, 64), (128, 16), (32, 32), (64, 64)], ids=lambda b: f"{b[0]}x{b[1]}")
def test_few_columns_of_long_lists(block, free, order, rng):
    """More squares for each CTA than its warps begin with, and tiles of odd and even numbers of stages."""
    if order == "row":
        free = max(free, 8)  # lines of 16 bytes
    options = {"block": block, "density": 0.25, "shuffled": True}
    size = (4224 // block[0], 4224 // block[0], 8192 // block[1])
    check("sparse_dense", "sm90", torch.float16, rng, free=free, order=order, size=size, **options)


@pytest.mark.parametrize("density", [0.0, 0.001, 0.05, 1.0])
@pytest.mark.parametrize("free", [64, 256])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("product", ONE_SPARSE)
def test_few_columns_of_many_tiles(product, block, free, density, rng):
    """Clusters get several tiles each, and those of 32 rows as many as they can list or too many."""
    rows = {16: 33792, 32: 67584, 64: 33024, 128: 20096}[block] + (256 if density == 0.05 else 0)
    size = (rows // block, rows // block, 256 // block)
    check(product, "sm90", torch.float16, rng, block=(block, block), free=free, size=size, density=density)


@pytest.mark.parametrize("free", [16, 192, 256])
@pytest.mark.parametrize(("block", "rows"), [(16, 500), (32, 140), (64, 66), (64, 129), (64, 300), (128, 64)])
def test_few_columns_of_unequal_rows(block, rows, free, rng):
    check_in_a_graph(zipf(rng, rows, 20, block, "cuda"), dense(rng, 20 * block, free, torch.float16, "cuda"))


@pytest.mark.parametrize("free", [64, 256])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_few_columns_and_one_row_of_all_blocks(block, free, rng):
    """Nearly everything is in a cluster's one tile, and most clusters have nothing."""
    rows, cols = 8192 // block, 4096 // block
    offsets = torch.cat([torch.zeros(5, dtype=torch.int64), torch.full((rows - 4,), cols)]).cuda()
    columns = torch.from_numpy(rng.permutation(cols).astype(np.int32)).cuda()
    values = torch.from_numpy(rng.standard_normal((cols, block, block), dtype=np.float32)).cuda().half()
    matrix = BSRMatrix(values, offsets, columns, (8192, 4096))
    check_in_a_graph(matrix, dense(rng, 4096, free, torch.float16, "cuda"))


@pytest.mark.parametrize("free", [64, 256])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_few_columns_and_garbage_in_unchecked_structure(block, free, rng):
    x = torch.ones(4 * block, free, device="cuda", dtype=torch.float16)
    for matrix in broken_structures(rng, block, "cuda", rows=8192 // block):
        assert torch.isfinite(bsr_gemm(matrix, x, backend="sm90")).all()
    for matrix in broken_structures(rng, block, "cuda", cols=8192 // block):
        assert torch.isfinite(bsr_gemm(x.T.contiguous(), matrix, backend="sm90")).all()


@pytest.mark.parametrize("free", [16, 256])
def test_few_columns_each_from_the_one_before(free, rng):
    """Kernels that start before the one ahead has ended must wait for what it writes."""
    matrices = [sparse(rng, 64, 64, (64, 64), 0.1, torch.float16, "cuda")[0] for _ in range(8)]
    x = [dense(rng, 4096, free, torch.float16, "cuda") for _ in range(9)]

    def chain(wait):
        for i, matrix in enumerate(matrices):
            bsr_gemm(matrix, x[i], alpha=0.05, out=x[i + 1], backend="sm90")
            if wait:
                torch.cuda.synchronize()

    chain(wait=True)
    expected = x[8].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(wait=False)
    for _ in range(10):
        for values in x[1:]:
            values.fill_(float("nan"))
        graph.replay()
        assert torch.equal(x[8], expected)
