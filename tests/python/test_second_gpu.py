"""Arrays on a GPU that is not the current one: work goes there, is waited for there, and nothing else changes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import reference
import torch
from torch_helpers import check_attention, normal, qkv, some_mask, sparse

import sparsek
import sparsek.torch
from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
SECOND = "cuda:1"


@pytest.fixture(autouse=True)
def current_device():
    """The first GPU is current before every test, and afterwards too."""
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0


def check_product(got, a, b):
    reference.assert_close(got, reference.matmul(a, b), reference.matmul(a, b, dtype=torch.float16))


@pytest.mark.parametrize("rules", [{}, {"causal": True}, {"window": (20, 3)}], ids=["all", "causal", "window"])
@pytest.mark.parametrize("masked", [False, True], ids=["dense", "lists"])
@pytest.mark.parametrize("q_len", [1, 96])
def test_attention(q_len, masked, rules, rng):
    q, k, v = qkv(rng, SECOND, torch.float16, q_len=q_len)
    mask = some_mask(rng, q) if masked and q_len == 96 else None
    out, lse = attention(q, k, v, mask=mask, return_lse=True, **rules)
    assert out.device == lse.device == q.device
    check_attention(out, q, k, v, lse=lse, mask=mask, **rules)


def test_more_tiles_than_an_sm_each(rng):
    """With a workspace and a kernel before the main one."""
    q, k, v = qkv(rng, SECOND, torch.float16, batch=4, q_len=1024, kv_len=1024, heads=8, kv_heads=8, head_dim=64)
    mask = some_mask(rng, q, q_len=1024, kv_len=1024, heads=8)
    for rules in ({}, {"causal": True}):
        check_attention(attention(q, k, v, mask=mask, **rules), q, k, v, mask=mask, **rules)
        check_attention(attention(q, k, v, **rules), q, k, v, **rules)


@pytest.mark.parametrize("cols", [16, 512])
def test_products(cols, rng):
    a = sparse(rng, 1024, 512, (64, 64), SECOND, torch.float16)
    b = sparse(rng, 512, 1024, (64, 64), SECOND, torch.float16)
    x = normal(rng, 512, cols, device=SECOND, dtype=torch.float16)
    for got, left, right in (
        (bsr_gemm(a, x), a.to_dense(), x),
        (bsr_gemm(x.T, b), x.T, b.to_dense()),
        (bsr_gemm(a, b), a.to_dense(), b.to_dense()),
        (bsr_gemm(x.T, x), x.T, x),
    ):
        assert got.device == x.device
        check_product(got, left, right)


def test_sampled_product(rng):
    pattern = sparse(rng, 256, 512, (64, 64), SECOND, torch.float16)
    a, b = (normal(rng, *shape, device=SECOND, dtype=torch.float16) for shape in ((256, 128), (128, 512)))
    out = bsr_gemm(a, b, out_pattern=pattern)
    assert out.values.device == a.device
    kept = BSRMatrix(torch.ones_like(pattern.values), pattern.row_offsets, pattern.col_indices, pattern.shape)
    expected, lowprec = (reference.matmul(a, b, dtype=dtype) * kept.to_dense() for dtype in (torch.float64, a.dtype))
    reference.assert_close(out.to_dense(), expected, lowprec)


def test_a_plan_is_waited_for(rng):
    """Whatever stream comes next may read it."""
    matrix = sparse(rng, 128, 64, device=SECOND, dtype=torch.float16)
    with torch.cuda.device(1):
        torch.cuda._sleep(100_000_000)
    assert not torch.cuda.default_stream(1).query()
    assert matrix._plan(right=False) is not None
    assert torch.cuda.default_stream(1).query()


def test_gradients(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng, SECOND, torch.float16))
    mask = some_mask(rng, q.detach())
    got = torch.autograd.grad(sparsek.torch.attention(q, k, v, mask=mask).float().square().sum(), (q, k, v))
    at_home = [x.detach().to("cuda:0").requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(
        sparsek.torch.attention(*at_home, mask=mask.to(at_home[0].detach())).float().square().sum(), at_home
    )
    for there, here in zip(got, want, strict=True):
        assert there.device == q.device
        assert torch.equal(there.to("cuda:0"), here)


def test_graph(rng):
    q, k, v = qkv(rng, SECOND, torch.float16)
    mask = some_mask(rng, q)
    weight, x = sparse(rng, 128, 64, device=SECOND, dtype=torch.float16), q[0, :64, 0]
    bsr_gemm(weight, x)
    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # torch keeps its own for later graphs
            out, product = attention(q, k, v, mask=mask), bsr_gemm(weight, x)
    q.copy_(normal(rng, *q.shape))
    graph.replay()
    torch.cuda.synchronize(1)
    check_attention(out, q, k, v, mask=mask)
    check_product(product, weight.to_dense(), x)


def test_the_callers_stream_there(rng):
    q, k, v = qkv(rng, SECOND, torch.float16)
    want = attention(q, k, v)
    stream = torch.cuda.Stream(1)
    torch.cuda.synchronize(1)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late = q.clone().mul_(0).add_(q)
    with torch.cuda.device(1), torch.cuda.stream(stream):
        torch.cuda.set_device(0)  # the stream of the second GPU stays the current one there
        got = attention(late, k, v)
    stream.synchronize()
    assert torch.equal(got, want)


def test_both_at_once(rng):
    inputs = {device: qkv(rng, device, torch.float16, q_len=512, kv_len=512) for device in ("cuda:0", SECOND)}
    want = {device: attention(*arrays) for device, arrays in inputs.items()}
    wrong = []

    def work(device):
        for _ in range(50):
            if not torch.equal(attention(*inputs[device]), want[device]):
                wrong.append(device)

    threads = [threading.Thread(target=work, args=(device,)) for device in inputs for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arrays_of_two_gpus(rng):
    q, k, v = qkv(rng, SECOND, torch.float16)
    with pytest.raises(ValueError, match=r"k: expected the device of q \(cuda:1\), got cuda:0"):
        attention(q, k.to("cuda:0"), v)
    with pytest.raises(ValueError, match=r"mask: .*cuda:1.*cuda:0"):
        attention(q, k, v, mask=some_mask(rng, q.to("cuda:0")))
    matrix = sparse(rng, 128, 64, device=SECOND, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"b: .*cuda:1.*cuda:0"):
        bsr_gemm(matrix, torch.ones(64, 32, dtype=torch.float16, device="cuda:0"))


def test_cupy(rng):
    cupy = pytest.importorskip("cupy")
    host = [x.numpy() for x in qkv(rng, dtype=torch.float16)]
    mask = some_mask(rng, host[0])
    with cupy.cuda.Device(1):
        arrays = [cupy.asarray(x) for x in host]
        matrix = BSRMatrix.from_dense(cupy.asarray(host[0][0, :, 0]), (16, 16))
    out = attention(*arrays, mask=mask.to(arrays[0]))
    assert out.device.id == 1
    check_attention(torch.from_numpy(out.get()), *map(torch.from_numpy, host), mask=mask)
    product = bsr_gemm(matrix, arrays[0][0, :32, 0])
    assert product.device.id == 1
    check_product(*(torch.from_numpy(x) for x in (product.get(), host[0][0, :, 0], host[0][0, :32, 0])))


def test_jax(rng):
    """JAX shows no stream: its results are there when a call returns, however long it takes."""
    jax = pytest.importorskip("jax")
    first, second = jax.devices("cuda")[:2]
    shape = (1, 16384, 16, 64)
    q, k, v = (jax.random.normal(key, shape, "float16") for key in jax.random.split(jax.random.key(0), 3))
    want = np.array(attention(*(jax.device_put(x, first) for x in (q, k, v))))
    there = [jax.device_put(x, second) for x in (q, k, v)]
    for x in there:
        x.block_until_ready()
    for _ in range(3):
        out = attention(*there)
        assert torch.cuda.default_stream(1).query()
        assert out.devices() == {second}
        assert np.array_equal(np.array(out), want)


def test_jit_of_jax(rng):
    jax = pytest.importorskip("jax")
    import sparsek.jax

    second = jax.devices("cuda")[1]
    host = [x.numpy() for x in qkv(rng, dtype=torch.float16)]
    mask = some_mask(rng, host[0])
    arrays = [jax.device_put(x, second) for x in host]
    out = jax.jit(lambda q, k, v: sparsek.jax.attention(q, k, v, mask=mask.to(arrays[0])))(*arrays)
    assert out.devices() == {second}
    check_attention(torch.from_numpy(np.array(out)), *map(torch.from_numpy, host), mask=mask)
    torch.cuda.set_device(0)  # XLA leaves its own one current


def test_masks_made_there(rng):
    for mask in (
        BlockMask.from_dense(torch.from_numpy(rng.random((96, 128)) < 0.5).to(SECOND), q_block=32, kv_block=32),
        BlockMask.from_mask_mod(
            lambda b, h, q, k: (q - k) % 3 == 0, q_len=96, kv_len=128, q_block=32, kv_block=32, device=SECOND
        ),
    ):
        assert str(mask.device) == SECOND
        q, k, v = qkv(rng, SECOND, torch.float16)
        check_attention(attention(q, k, v, mask=mask), q, k, v, mask=mask)
