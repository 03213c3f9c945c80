"""BSRMatrix from and to the arrays of other libraries, and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from bsr_matrices import decode, example, random_dense

from sparsek import BSRMatrix, prune

# What torch says once of its sparse tensors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse BSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_torch(dtype):
    dense = torch.randn(6, 8).to(dtype)
    dense[:2, 4:] = 0
    tensor = dense.to_sparse_bsr((2, 4))
    matrix = BSRMatrix.from_torch(tensor)
    assert matrix.values.data_ptr() == tensor.values().data_ptr()
    assert torch.equal(matrix.to_dense(), dense)
    back = matrix.to_torch()
    assert back.layout == torch.sparse_bsr
    assert back.values().data_ptr() == tensor.values().data_ptr()
    assert torch.equal(back.to_dense(), dense)
    assert torch.equal(matrix.T.to_torch().to_dense(), dense.T)


@pytest.mark.parametrize("library", [np, torch])
def test_to_torch_sorts_columns(library):
    matrix = example(library)
    for converted in (matrix, matrix.T):
        tensor = converted.to_torch()
        torch.sparse_bsr_tensor(
            tensor.crow_indices(), tensor.col_indices(), tensor.values(), tensor.shape, check_invariants=True
        )
        np.testing.assert_array_equal(tensor.to_dense().numpy(), decode(converted))


def test_to_torch_shares_numpy_values():
    matrix = BSRMatrix.from_dense(np.ones((4, 4), np.float32), (2, 2))
    assert np.shares_memory(matrix.to_torch().values().numpy(), matrix.values)


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (lambda: torch.ones(2, 2), TypeError, r"tensor: expected a torch\.sparse_bsr tensor, got torch\.strided"),
        (lambda: np.ones((2, 2)), TypeError, r"tensor: expected a torch\.sparse_bsr tensor, got ndarray"),
        (
            lambda: torch.ones(3, 2, 2).to_sparse_bsr((1, 1)),
            ValueError,
            "tensor: expected two axes, got shape",
        ),
        (lambda: torch.ones(2, 2, dtype=torch.float64).to_sparse_bsr((1, 1)), TypeError, "values: .* got float64"),
    ],
)
def test_from_torch_refuses(tensor, error, message):
    with pytest.raises(error, match=message):
        BSRMatrix.from_torch(tensor())


@pytest.mark.parametrize("kind", [scipy.sparse.bsr_array, scipy.sparse.bsr_matrix])
def test_scipy(kind):
    dense = random_dense(np.random.default_rng(1), 3, 4, 2, 5)
    given_matrix = kind(dense, blocksize=(2, 5))
    matrix = BSRMatrix.from_scipy(given_matrix)
    assert np.shares_memory(matrix.values, given_matrix.data)
    np.testing.assert_array_equal(matrix.to_dense(), dense)
    back = matrix.to_scipy()
    assert isinstance(back, scipy.sparse.bsr_array)
    assert np.shares_memory(back.data, matrix.values)
    np.testing.assert_array_equal(back.toarray(), dense)
    np.testing.assert_array_equal(matrix.T.to_scipy().toarray(), dense.T)


def test_scipy_with_room_to_spare():
    made = scipy.sparse.bsr_array(
        (np.ones((4, 1, 1), np.float32), np.array([1, 0, 0, 0]), np.array([0, 1, 2])), shape=(2, 2)
    )
    made.data, made.indices = np.ones((4, 1, 1), np.float32), np.array([1, 0, 0, 0])
    np.testing.assert_array_equal(BSRMatrix.from_scipy(made).to_dense(), [[0, 1], [1, 0]])


def test_scipy_refuses():
    with pytest.raises(TypeError, match=r"matrix: expected a scipy\.sparse\.bsr_array, got csr_array"):
        BSRMatrix.from_scipy(scipy.sparse.csr_array(np.eye(2, dtype=np.float32)))
    with pytest.raises(TypeError, match=r"values: .* got float64"):
        BSRMatrix.from_scipy(scipy.sparse.bsr_array(np.eye(2)))
    with pytest.raises(TypeError, match="values: expected float32, the dtype that SciPy has too, got float16"):
        example(dtype=np.float16).to_scipy()


def test_to_moves_every_array():
    matrix = example()
    for moved, expected in ((matrix.to(torch.empty(0)), matrix), (matrix.T.to(torch.empty(0)), matrix.T)):
        for name in ("values", "row_offsets", "col_indices"):
            assert isinstance(getattr(moved, name), torch.Tensor)
        np.testing.assert_array_equal(decode(moved), decode(expected))
    assert moved.to("cpu").values.data_ptr() == moved.values.data_ptr()
    assert isinstance(moved.to(np.empty(0)).values, np.ndarray)
    with pytest.raises(ValueError, match="cannot live on 'cuda:0', pass an array that does"):
        matrix.to("cuda:0")


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    dense = random_dense(np.random.default_rng(2), 3, 4, 2, 5)
    dense = jax.device_put(dense, jax.devices("cpu")[0])  # where there is a GPU, that is the default
    matrix = BSRMatrix.from_dense(dense.astype("bfloat16"), (2, 5))
    assert (matrix.dtype, matrix.row_offsets.dtype) == ("bfloat16", np.int64)
    dense = np.asarray(dense.astype("bfloat16"))
    for converted, expected in ((matrix, dense), (matrix.T, dense.T), (matrix.T.to("cpu"), dense.T)):
        assert isinstance(converted.to_dense(), jax.Array)
        np.testing.assert_array_equal(np.asarray(converted.to_dense()), expected)
        np.testing.assert_array_equal(decode(converted), expected)
        np.testing.assert_array_equal(converted.to_torch().to_dense().float().numpy(), expected.astype("float32"))
    assert prune(jax.device_put(dense, jax.devices("cpu")[0]), (2, 5), 0.25).nnz == 3


@pytest.mark.gpu
def test_on_a_gpu():
    dense = torch.randn(6, 8, device="cuda", dtype=torch.bfloat16)
    dense[:2, 4:] = 0
    matrix = BSRMatrix.from_dense(dense, (2, 4))
    assert (matrix.device, matrix.nnz) == ("cuda:0", 5)
    for converted, expected in ((matrix, dense), (matrix.T, dense.T)):
        assert converted.row_offsets.is_cuda
        assert torch.equal(converted.to_dense(), expected)
        assert torch.equal(converted.to_torch().to_dense(), expected)
        assert torch.equal(converted.to("cpu").to_dense(), expected.cpu())
    assert matrix.T.value_indices.is_cuda
    assert matrix.T.values.data_ptr() == matrix.values.data_ptr()
    assert matrix.to_torch().values().data_ptr() == matrix.values.data_ptr()
    assert prune(dense, (2, 4), 0.5).nnz == 3
    with pytest.raises(ValueError, match="row_offsets: expected an array on cuda:0 as the values are, got one on cpu"):
        BSRMatrix(matrix.values, matrix.row_offsets.cpu(), matrix.col_indices, (6, 8))
