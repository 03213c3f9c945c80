"""Arrays of each library go in, arrays of the same library come out, and nothing is copied on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import reference
import torch

import sparsek
from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm

Q, K = (2, 48, 4, 32), (2, 64, 2, 32)


def values(rng):
    return [rng.standard_normal(shape, dtype=np.float32).astype(np.float16) for shape in (Q, K, K)]


def expected(q, k, v, mask):
    allowed = reference.allowed_pairs(48, 64, mask=mask.to_dense())
    arrays = [torch.from_numpy(x) for x in (q, k, v)]
    return reference.attention(*arrays, allowed), reference.attention(*arrays, allowed, dtype=torch.float16)


def some_mask(rng):
    return BlockMask.from_dense(rng.random((4, 48, 64)) < 0.5, q_block=16, kv_block=16)


class Library:
    """How the tests make and read the arrays of a library."""

    def __init__(self, name, device="cpu"):
        self.module = pytest.importorskip(name)
        self.name, self.device = name, device

    def array(self, x):
        if self.name == "numpy":
            return x
        if self.name == "torch":
            return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)
        if self.name == "cupy":
            return self.module.asarray(x)
        return self.module.device_put(x, self.module.devices(self.device)[0])

    def numpy(self, x):
        if self.name == "torch":
            return x.cpu().numpy()
        return x.get() if self.name == "cupy" else np.array(x)

    @property
    def kind(self):
        return {"numpy": "ndarray", "torch": "Tensor", "cupy": "ndarray", "jax": "ArrayImpl"}[self.name]


LIBRARIES = [
    pytest.param("numpy", "cpu", id="numpy"),
    pytest.param("torch", "cpu", id="torch"),
    pytest.param("jax", "cpu", id="jax"),
    pytest.param("torch", "cuda", id="torch-cuda", marks=pytest.mark.gpu),
    pytest.param("cupy", "cuda", id="cupy-cuda", marks=pytest.mark.gpu),
    pytest.param("jax", "cuda", id="jax-cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize(("name", "device"), LIBRARIES)
def test_attention(name, device, rng):
    library = Library(name, device)
    q, k, v = values(rng)
    mask = some_mask(rng)
    want, lowprec = expected(q, k, v, mask)
    arrays = [library.array(x) for x in (q, k, v)]
    out, lse = attention(*arrays, mask=mask.to(arrays[0]), return_lse=True)
    for result in (out, lse):
        assert type(result).__name__ == library.kind
        assert type(result).__module__.partition(".")[0] == type(arrays[0]).__module__.partition(".")[0]
    reference.assert_close(library.numpy(out), want.out, lowprec.out)
    reference.assert_close(library.numpy(lse), want.lse, lowprec.lse)
    for given, array in zip((q, k, v), arrays, strict=True):
        assert np.array_equal(library.numpy(array), given)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(("name", "device"), LIBRARIES)
def test_empty_arrays(name, device, layout):
    """Some libraries give an array without elements strides of 0, which no check may mind."""
    library = Library(name, device)

    def array(*shape):
        shape = (shape[0], shape[2], shape[1], shape[3]) if layout == "bhsd" else shape
        return library.array(np.zeros(shape, np.float16))

    some, no_keys = array(2, 5, 4, 64), array(2, 0, 4, 64)
    for q, kv in ((array(2, 0, 4, 64), some), (array(0, 5, 4, 64), array(0, 5, 4, 64)), (some, no_keys)):
        out, lse = attention(q, kv, kv, layout=layout, return_lse=True)
        assert out.shape == q.shape
        assert not library.numpy(out).any()
        assert np.isneginf(library.numpy(lse)).all()


@pytest.mark.parametrize(("name", "device"), LIBRARIES)
def test_bsr_gemm(name, device, rng):
    library = Library(name, device)
    dense = rng.standard_normal((64, 96), dtype=np.float32).astype(np.float16)
    dense *= (rng.random((4, 6)) < 0.5).repeat(16, 0).repeat(16, 1)
    x = rng.standard_normal((96, 40), dtype=np.float32).astype(np.float16)
    matrix = BSRMatrix.from_dense(library.array(dense), (16, 16))
    y = bsr_gemm(matrix, library.array(x))
    assert type(y).__name__ == library.kind
    a, b = torch.from_numpy(dense), torch.from_numpy(x)
    reference.assert_close(library.numpy(y), reference.matmul(a, b), reference.matmul(a, b, dtype=torch.float16))


def test_bfloat16_of_jax(rng):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(x, dtype="bfloat16") for x in values(rng))
    out = attention(q, k, v)
    assert out.dtype == jax.numpy.bfloat16
    arrays = [torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in (q, k, v)]
    allowed = reference.allowed_pairs(48, 64)
    want = reference.attention(*arrays, allowed)
    lowprec = reference.attention(*arrays, allowed, dtype=torch.bfloat16)
    reference.assert_close(np.asarray(out, dtype=np.float32), want.out, lowprec.out)


def test_array_of_an_unknown_library(rng):
    class Wrapped:
        """Nothing but DLPack."""

        def __init__(self, array):
            self._array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **kwargs):
            return self._array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    q, k, v = values(rng)
    out = attention(Wrapped(q), Wrapped(k), Wrapped(v))
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, attention(q, k, v))


def test_output_is_the_callers_own_memory(rng):
    q, k, v = values(rng)
    out = np.full(Q, np.nan, np.float16)
    assert attention(q, k, v, out=out) is out
    assert np.isfinite(out).all()


def test_numpy_inputs_may_be_read_only(rng):
    q, k, v = values(rng)
    want = attention(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    assert np.array_equal(attention(q, k, v), want)


def test_backends_table():
    rows = sparsek.backends()
    assert {(row.operation, row.name) for row in rows} >= {("attention", "cpu"), ("bsr_gemm", "cpu")}
    for row in rows:
        assert row.available == (row.reason == "")
        assert row.available or row.name != "cpu"


@pytest.mark.gpu
def test_runs_on_the_callers_stream(rng):
    q, k, v = (torch.from_numpy(x).cuda() for x in values(rng))
    want = attention(q, k, v)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # a call on any other stream would run ahead of the copy
        late = q.clone().mul_(0).add_(q)
        got = attention(late, k, v)
    stream.synchronize()
    assert torch.equal(got, want)


@pytest.mark.gpu
def test_runs_on_cupys_current_stream(rng):
    cupy = pytest.importorskip("cupy")
    q, k, v = (cupy.asarray(x) for x in values(rng))
    want = attention(q, k, v)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        slow = cupy.ones((4096, 4096), cupy.float32)
        for _ in range(20):  # a call on any other stream would run ahead of these
            slow = slow @ slow * 1e-4
        late = q + (slow[0, 0] * 0).astype(cupy.float16)
        got = attention(late, k, v)
    stream.synchronize()
    assert cupy.array_equal(got, want)


@pytest.mark.gpu
@pytest.mark.parametrize("work", ["dense", "lists", "weights", "few columns", "many columns", "sampled", "no blocks"])
def test_first_use_of_cuda_in_a_thread(work, rng):
    """Results come from memory that torch has cached, which brings no context along."""
    q, k, v = (torch.from_numpy(x).cuda() for x in values(rng))
    mask = some_mask(rng).to(q)
    matrix = BSRMatrix.from_dense(
        torch.from_numpy(rng.standard_normal((128, 128), dtype=np.float32)).half().cuda(), (64, 64)
    )
    x = torch.ones(128, 512, dtype=torch.float16, device="cuda")
    full = matrix.to_dense()
    run = {
        "dense": lambda: attention(q, k, v),
        "lists": lambda: attention(q, k, v, mask=mask),
        "weights": lambda: attention(q, k, v, return_weights=True)[1],
        "few columns": lambda: bsr_gemm(matrix, x[:, :32]),
        "many columns": lambda: bsr_gemm(matrix, x),
        "sampled": lambda: bsr_gemm(full, x[:, :128], out_pattern=matrix).values,
        "no blocks": lambda: bsr_gemm(x.T, x, backend="sm90_dense"),
    }[work]

    want = run()
    with ThreadPoolExecutor(1) as thread:
        got = thread.submit(run).result()
    assert torch.equal(got, want)


@pytest.mark.gpu
def test_cuda_graph_replay_with_new_inputs_and_lists(rng):
    q, k, v = (torch.from_numpy(x).cuda() for x in values(rng))
    indices = torch.zeros(1, 4, 3, 4, dtype=torch.int32, device="cuda")
    counts = torch.ones(1, 4, 3, dtype=torch.int32, device="cuda")
    mask = BlockMask.from_indices(indices, counts, q_len=48, kv_len=64, q_block=16, kv_block=16)
    attention(q, k, v, mask=mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, mask=mask)
    for _ in range(3):
        fresh = values(rng)
        for array, x in zip((q, k, v), fresh, strict=True):
            array.copy_(torch.from_numpy(x))
        order = rng.random((1, 4, 3, 4)).argsort(-1).astype(np.int32)
        indices.copy_(torch.from_numpy(order))
        counts.copy_(torch.from_numpy(rng.integers(0, 5, (1, 4, 3), dtype=np.int32)))
        graph.replay()
        torch.cuda.synchronize()
        want, lowprec = expected(*fresh, mask)
        reference.assert_close(out, want.out, lowprec.out)
