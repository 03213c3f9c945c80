"""Products whose arrays have more than 2^31 elements, and so more than 2^32 bytes."""

from __future__ import annotations

import pytest
import reference
import torch

from sparsek import BSRMatrix, bsr_gemm

pytestmark = pytest.mark.gpu

BACKENDS = ["sm90", "wmma", "simt"]
DTYPE = torch.float16
BLOCK = 128


@pytest.fixture(autouse=True)
def _room(rng):
    torch.manual_seed(int(rng.integers(2**31)))  # rng is too slow for so many numbers
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < 24 * 2**30:
        pytest.skip(f"24 GB of GPU memory are needed, {free / 2**30:.0f} are free")
    yield
    torch.cuda.empty_cache()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=DTYPE, device="cuda")


def matrix(keep: torch.Tensor) -> BSRMatrix:
    """Random blocks where `keep`, bool (block rows, block columns), says so."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), keep.sum(1).cumsum(0)])
    columns = keep.nonzero()[:, 1].int()
    shape = (keep.shape[0] * BLOCK, keep.shape[1] * BLOCK)
    return BSRMatrix(normal(len(columns), BLOCK, BLOCK), offsets.cuda(), columns.cuda(), shape)


def block_row(a: BSRMatrix, row: int) -> torch.Tensor:
    """(128, columns): a block row, dense."""
    begin, end = (int(x) for x in a.row_offsets[row : row + 2])
    dense = torch.zeros(BLOCK, a.shape[1] // BLOCK, BLOCK, dtype=DTYPE, device="cuda")
    dense[:, a.col_indices[begin:end].long()] = a.values[begin:end].transpose(0, 1)
    return dense.reshape(BLOCK, a.shape[1])


def check(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Whether out is left @ right; another place's result would be off by all of it."""
    reference.assert_close(out, reference.matmul(left, right), reference.matmul(left, right, dtype=DTYPE))


def first_middle_last(count: int) -> tuple[int, int, int]:
    return 0, count // 2, count - 1


@pytest.mark.parametrize("transposed", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_result(backend, transposed):
    """With the matrix as a or, transposed with all else, as b."""
    rows, free = 512, 33000
    keep = torch.rand(rows, 8) < 0.2
    keep[-1] = True
    a, b = matrix(keep), normal(8 * BLOCK, free)
    out = torch.full((rows * BLOCK, free), float("nan"), dtype=DTYPE, device="cuda")
    assert out.numel() > 2**31
    if transposed:
        bsr_gemm(b.T, a.T, out=out.T, backend=backend)
    else:
        bsr_gemm(a, b, out=out, backend=backend)
    for row in first_middle_last(rows):
        check(out[row * BLOCK : (row + 1) * BLOCK], block_row(a, row), b)
    assert not torch.isnan(out.sum(1, dtype=torch.float32)).any()


@pytest.mark.parametrize("free", [40, 520])
@pytest.mark.parametrize("backend", BACKENDS)
def test_values(backend, free):
    keep = torch.ones(512, 260, dtype=torch.bool)
    a, x = matrix(keep), normal(260 * BLOCK, free)
    assert a.values.numel() > 2**31
    out = bsr_gemm(a, x, backend=backend)
    for row in first_middle_last(512):
        check(out[row * BLOCK : (row + 1) * BLOCK], block_row(a, row), x)
    y = normal(free, 512 * BLOCK)
    by_column = bsr_gemm(y, a, backend=backend)
    for row in first_middle_last(260):
        column = a.values[row::260].reshape(-1, BLOCK)
        check(by_column[:, row * BLOCK : (row + 1) * BLOCK], y, column)


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_dense_operand(backend, order):
    keep = torch.rand(3, 512) < 0.05
    keep[:, -1] = True
    a = matrix(keep)
    b = normal(512 * BLOCK, 33000) if order == "row" else normal(33000, 512 * BLOCK).T
    assert b.numel() > 2**31
    out = bsr_gemm(a, b, backend=backend)
    ends = [slice(0, 300), slice(-300, None)]
    for row in range(3):
        for columns in ends:
            check(out[row * BLOCK : (row + 1) * BLOCK, columns], block_row(a, row), b[:, columns])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sampled(backend):
    keep = torch.ones(512, 260, dtype=torch.bool)
    pattern = matrix(keep)
    a, b = normal(512 * BLOCK, 64), normal(64, 260 * BLOCK)
    pattern.values.fill_(float("nan"))
    bsr_gemm(a, b, out_pattern=pattern, out=pattern, backend=backend)
    for row in first_middle_last(512):
        check(block_row(pattern, row), a[row * BLOCK : (row + 1) * BLOCK], b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_sparse(backend):
    """Values of a, and the result."""
    rows, inner, cols = 512, 264, 260
    a = matrix(torch.ones(rows, inner, dtype=torch.bool))
    keep = torch.rand(inner, cols) < 0.02
    keep[-1, -1] = True
    b = matrix(keep)
    out = bsr_gemm(a, b, backend=backend)
    assert min(a.values.numel(), out.numel()) > 2**31
    dense = torch.cat([block_row(b, row) for row in range(inner)])
    for row in first_middle_last(rows):
        check(out[row * BLOCK : (row + 1) * BLOCK], block_row(a, row), dense)


@pytest.mark.parametrize("backend", ["sm90_dense", "wmma", "simt"])
def test_two_dense(backend):
    a, b = normal(512 * BLOCK, 64), normal(64, 33000)
    out = bsr_gemm(a, b, backend=backend)
    assert out.numel() > 2**31
    for rows in (slice(0, 300), slice(-300, None)):
        check(out[rows], a[rows], b)
