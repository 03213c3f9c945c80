"""Operands of block-sparse products for tests, and the check of a product against the float64 one."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from sparsek import BSRMatrix, bsr_gemm

PRODUCTS = ["sparse_dense", "dense_sparse", "sparse_sparse", "sampled"]
ONE_SPARSE = ["sparse_dense", "dense_sparse"]


def device_of(backend):
    return "cpu" if backend == "cpu" else "cuda"


def dense(rng, rows, cols, dtype, device, order="row"):
    values = torch.from_numpy(rng.standard_normal((rows, cols), dtype=np.float32)).to(device, dtype)
    if order == "column":
        return values.T.contiguous().T
    if order == "strided":
        wide = torch.full((2 * rows, 3 * cols), float("nan"), dtype=dtype, device=device)
        wide[::2, 1::3] = values
        return wide[::2, 1::3]
    return values


def sparse(rng, block_rows, block_cols, block, density, dtype, device, *, transposed=False, shuffled=False):
    """A random BSRMatrix of that many blocks, and the same as a dense tensor."""
    if transposed:
        matrix, full = sparse(rng, block_cols, block_rows, block[::-1], density, dtype, device, shuffled=shuffled)
        return matrix.T, full.T
    bm, bk = block
    keep = rng.random((block_rows, block_cols)) < density
    rows, cols = np.nonzero(keep)
    if shuffled:  # any order inside a row
        order = np.lexsort((rng.random(len(rows)), rows))
        rows, cols = rows[order], cols[order]
    offsets = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    values = torch.from_numpy(rng.standard_normal((len(rows), bm, bk), dtype=np.float32)).to(device, dtype)
    full = torch.zeros(block_rows, block_cols, bm, bk, dtype=dtype, device=device)
    full[torch.from_numpy(rows), torch.from_numpy(cols)] = values
    matrix = BSRMatrix(
        values,
        torch.from_numpy(offsets).to(device),
        torch.from_numpy(cols.astype(np.int32)).to(device),
        (block_rows * bm, block_cols * bk),
    )
    return matrix, full.transpose(1, 2).reshape(block_rows * bm, block_cols * bk)


def zipf(rng, block_rows, block_cols, block, device):
    """A float16 matrix whose block row i has block_cols / (i + 1) blocks, in a random order of rows."""
    counts = rng.permutation([block_cols // (i + 1) for i in range(block_rows)])
    return of_lengths(rng, counts, block_cols, block, device)


def of_lengths(rng, counts, block_cols, block, device):
    """A float16 matrix whose block row i has counts[i] blocks."""
    block_rows = len(counts)
    columns = np.concatenate([rng.permutation(block_cols)[:count] for count in counts])
    values = torch.from_numpy(rng.standard_normal((len(columns), block, block), dtype=np.float32)).to(device).half()
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])).to(device)
    columns = torch.from_numpy(columns.astype(np.int32)).to(device)
    return BSRMatrix(values, offsets, columns, (block_rows * block, block_cols * block))


def check_in_a_graph(matrix, x):
    """Replays after the values have changed; each gives the same bits."""
    out = bsr_gemm(matrix, x, backend="sm90")  # makes the plan, which a capture cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bsr_gemm(matrix, x, out=out, backend="sm90")
    for _ in range(2):
        matrix.values.normal_()
        out.fill_(float("nan"))
        graph.replay()
        full = torch.as_tensor(matrix.to_dense())
        lowprec = reference.matmul(full, x, 1.0, None, 0.0, dtype=torch.float16)
        reference.assert_close(out, reference.matmul(full, x, 1.0, None, 0.0), lowprec)
        first = out.clone()
        for _ in range(20):
            graph.replay()
            assert torch.equal(out, first)


def broken_structures(rng, block, device, dtype=torch.float16, rows=4, cols=4):
    """Matrices of so many blocks of ones each way with offsets, and once columns too, of any value."""
    values = torch.ones(6, block, block, device=device, dtype=dtype)
    offsets = torch.from_numpy(rng.integers(-(2**62), 2**62, rows + 1, dtype="int64")).to(device)
    columns = torch.from_numpy(rng.integers(-(2**31), 2**31 - 1, 6, dtype="int32")).to(device)
    for indices in (columns, columns % cols):
        yield BSRMatrix(values, offsets, indices, (rows * block, cols * block), check=False)


def at_pattern(matrix, full):
    """The blocks of a dense tensor that a matrix has, as its values lie."""
    structure = matrix.with_values(torch.ones_like(matrix.values)).to_dense()
    return torch.where(torch.as_tensor(structure, device=full.device) != 0, full, torch.zeros_like(full))


def call_declined(product, dtype, rng, block):
    """A product of blocks that the wmma backend does not take."""
    a, _ = sparse(rng, 2, 3, block, 1.0, dtype, "cuda")
    x, y = (dense(rng, rows, cols, dtype, "cuda") for rows, cols in ((3 * block[1], 8), (8, 2 * block[0])))
    if product == "sampled":
        bsr_gemm(y.T, x.T, out_pattern=a, backend="wmma")
    elif product == "sparse_sparse":
        bsr_gemm(a, a.T, backend="wmma")
    else:
        bsr_gemm(*((a, x) if product == "sparse_dense" else (y, a)), backend="wmma")


def values_at(pattern, full):
    """The values that `pattern` would have if it were cut out of a dense tensor."""
    bm, bk = pattern.block_shape
    blocks = full.reshape(full.shape[0] // bm, bm, full.shape[1] // bk, bk).transpose(1, 2)
    probe = torch.arange(1, pattern.nnz + 1, dtype=torch.float32, device=full.device)
    numbered = pattern.with_values(probe[:, None, None].expand(pattern.nnz, bm, bk).contiguous())
    where = torch.as_tensor(numbered.to_dense()).reshape(full.shape[0] // bm, bm, full.shape[1] // bk, bk)
    where = where[:, 0, :, 0].long()
    values = torch.empty(pattern.nnz, bm, bk, dtype=full.dtype, device=full.device)
    rows, cols = where.nonzero(as_tuple=True)
    values[where[rows, cols] - 1] = blocks[rows, cols]
    return values


def check(
    product,
    backend,
    dtype,
    rng,
    *,
    block,
    density=0.4,
    size=(3, 2, 4),
    order="row",
    transposed=False,
    shuffled=False,
    alpha=1.0,
    beta=0.0,
    out_dtype=None,
    free=45,
    depth=37,
):
    device = device_of(backend)
    m_blocks, n_blocks, k_blocks = size
    bm, bk = block
    if backend == "wmma" and (bm % 16 or bk % 16):
        with pytest.raises(NotImplementedError, match=r"wmma: blocks of \w+ are \d+x\d+, expected multiples of 16"):
            call_declined(product, dtype, rng, block)
        return
    options = {"dtype": dtype, "device": device, "transposed": transposed, "shuffled": shuffled}
    pattern = None
    if product == "dense":
        a = a_full = dense(rng, m_blocks * bm, depth, dtype, device, order)
        b = b_full = dense(rng, depth, free, dtype, device, order)
    elif product == "sampled":
        pattern, _ = sparse(rng, m_blocks, n_blocks, (bm, bk), density, **options)
        a = a_full = dense(rng, m_blocks * bm, depth, dtype, device, order)
        b = b_full = dense(rng, depth, n_blocks * bk, dtype, device, order)
    else:
        a, a_full = sparse(rng, m_blocks, k_blocks, (bm, bk), density, **options)
        if product == "sparse_dense":
            b = b_full = dense(rng, k_blocks * bk, free, dtype, device, order)
        elif product == "dense_sparse":
            b, b_full = sparse(rng, k_blocks, n_blocks, (bk, bm), density, **options)
            a = a_full = dense(rng, free, k_blocks * bk, dtype, device, order)
        else:
            b, b_full = sparse(rng, k_blocks, n_blocks, (bk, bm), density, **options)
    out_type = out_dtype or dtype
    m, n = a_full.shape[0], b_full.shape[1]
    c_full = torch.from_numpy(rng.standard_normal((m, n), dtype=np.float32)).to(device, out_type)
    expected = reference.matmul(a_full, b_full, alpha, c_full, beta)
    lowprec = reference.matmul(a_full, b_full, alpha, c_full.to(dtype), beta, dtype=dtype)

    poison = float("nan")
    if product == "sampled":
        c = pattern.with_values(values_at(pattern, c_full))
        out = pattern.with_values(torch.full(tuple(pattern.values.shape), poison, dtype=out_type, device=device))
        expected, lowprec = at_pattern(pattern, expected), at_pattern(pattern, lowprec)
    else:
        c = c_full
        out = torch.full((m, n), poison, dtype=out_type, device=device)
    arguments = {"alpha": alpha, "beta": beta, "c": c if beta else None, "out_pattern": pattern, "backend": backend}
    result = bsr_gemm(a, b, out=out, **arguments)
    assert result is out
    again = bsr_gemm(a, b, out_dtype=out_type, **arguments)

    def as_dense(x):
        return torch.as_tensor(x.to_dense()) if isinstance(x, BSRMatrix) else x

    assert (again.values if pattern is not None else again).dtype == out_type
    assert torch.equal(as_dense(again), as_dense(result))
    reference.assert_close(as_dense(result), expected, lowprec)
