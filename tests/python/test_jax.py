"""`sparsek.jax` in compiled programs and outside, against the formulas in float64."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import reference
import torch

import sparsek
from sparsek import BlockMask, BSRMatrix

jax = pytest.importorskip("jax")
jnp = jax.numpy

import sparsek.jax as sj  # noqa: E402

PLATFORMS = [pytest.param("cpu", id="cpu"), pytest.param("cuda", id="cuda", marks=pytest.mark.gpu)]
DTYPES = ["float16", "bfloat16"]
Q, K, V = (2, 200, 4, 64), (2, 264, 2, 64), (2, 264, 2, 32)


@pytest.fixture(params=PLATFORMS)
def device(request):
    try:
        return jax.devices(request.param)[0]
    except RuntimeError as error:
        pytest.skip(f"this JAX has no {request.param}: {error}")


def inputs(rng, dtype="float16", shapes=(Q, K, V)):
    """Numbers that the dtype represents, as NumPy float32: JAX and the reference read the same ones."""
    kind = getattr(torch, dtype)
    return [torch.from_numpy(rng.standard_normal(s, dtype=np.float32)).to(kind).float().numpy() for s in shapes]


def put(arrays, device, dtype):
    return [jax.device_put(jnp.asarray(x, dtype=dtype), device) for x in arrays]


def references(arrays, dtype, **allowed):
    tensors = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in arrays]
    pairs = reference.allowed_pairs(tensors[0].shape[1], tensors[1].shape[1], **allowed)
    return reference.attention(*tensors, pairs), reference.attention(*tensors, pairs, dtype=getattr(torch, dtype))


def host(array):
    return np.array(array.astype(jnp.float32))


def some_mask(rng, padded=False):
    mask = BlockMask.from_dense(rng.random((4, 200, 264)) < 0.5, q_block=64, kv_block=64)
    keep = rng.random((4, 4, 5)) < 0.6
    blocks = np.repeat(np.repeat(keep, 64, 1), 64, 2)[:, :200, :264]
    mask = mask & BlockMask.from_dense(blocks, q_block=64, kv_block=64)
    if not padded:
        return mask
    order = np.argsort(~keep, axis=-1, kind="stable").astype(np.int32)
    return BlockMask.from_indices(order, keep.sum(-1), q_len=200, kv_len=264, q_block=64, kv_block=64)


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (40, 9)}, {"window": (None, 5), "causal": True}, {"scale": 0.3}],
    ids=["dense", "causal", "window", "left", "scale"],
)
def test_attention(options, dtype, compiled, device, rng):
    arrays = inputs(rng, dtype)
    allowed = {name: options[name] for name in ("causal", "window") if name in options}
    want, lowprec = references(arrays, dtype, **allowed)
    if "scale" in options:
        tensors = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in arrays]
        pairs = reference.allowed_pairs(200, 264)
        want = reference.attention(*tensors, pairs, scale=0.3)
        lowprec = reference.attention(*tensors, pairs, scale=0.3, dtype=getattr(torch, dtype))

    def call(q, k, v):
        return sj.attention(q, k, v, return_lse=True, **options)

    out, lse = (jax.jit(call) if compiled else call)(*put(arrays, device, dtype))
    assert isinstance(out, jax.Array)
    assert out.dtype == dtype
    assert lse.dtype == jnp.float32
    assert out.devices() == {device}
    reference.assert_close(host(out), want.out, lowprec.out)
    reference.assert_close(host(lse), want.lse, lowprec.lse, what="lse")


@pytest.mark.parametrize("how", ["argument", "numpy argument", "constant", "numpy constant", "eager"])
@pytest.mark.parametrize("padded", [False, True], ids=["compressed", "padded"])
def test_masks(padded, how, device, rng):
    arrays = inputs(rng)
    mask = some_mask(rng, padded)
    want, lowprec = references(arrays, "float16", mask=mask.to_dense(), causal=True)
    q, k, v = put(arrays, device, "float16")
    given = mask if "numpy" in how else mask.to(q)
    if how == "eager":
        out = sj.attention(q, k, v, mask=given, causal=True)
    elif "argument" in how:
        out = jax.jit(lambda q, k, v, mask: sj.attention(q, k, v, mask=mask, causal=True))(q, k, v, given)
    else:
        out = jax.jit(lambda q, k, v: sj.attention(q, k, v, mask=given, causal=True))(q, k, v)
    reference.assert_close(host(out), want.out, lowprec.out)


def test_lists_change_without_compiling_anew(device, rng):
    arrays = inputs(rng)
    q, k, v = put(arrays, device, "float16")
    traces = []

    @jax.jit
    def call(q, k, v, scores):
        traces.append(1)
        indices = jax.lax.top_k(scores, 2)[1]
        mask = BlockMask.from_indices(indices, None, q_len=200, kv_len=264, q_block=64, kv_block=64, check=False)
        return sparsek.attention(q, k, v, mask=mask)  # which is sparsek.jax's where JAX traces

    for _ in range(3):
        scores = rng.random((2, 4, 4, 5), dtype=np.float32)
        chosen = np.zeros((2, 4, 4, 5), bool)
        np.put_along_axis(chosen, np.argsort(-scores, -1)[..., :2], True, -1)
        pairs = np.repeat(np.repeat(chosen, 64, 2), 64, 3)[..., :200, :264]
        want, lowprec = references(arrays, "float16", mask=pairs)
        out = call(q, k, v, jax.device_put(scores, device))
        reference.assert_close(host(out), want.out, lowprec.out)
    assert len(traces) == 1


def test_lists_of_kv_heads(device, rng):
    arrays = inputs(rng)
    mask = BlockMask.from_dense(rng.random((2, 200, 264)) < 0.5, q_block=64, kv_block=64)
    want, lowprec = references(arrays, "float16", mask=mask.to_dense().repeat(2, axis=1))
    q, k, v = put(arrays, device, "float16")
    out = jax.jit(lambda q, k, v, mask: sj.attention(q, k, v, mask=mask))(q, k, v, mask.to(q))
    reference.assert_close(host(out), want.out, lowprec.out)


def test_traced_offsets(rng):
    q, k, v = put(inputs(rng), jax.devices("cpu")[0], "float16")
    mask = some_mask(rng)

    @jax.jit
    def call(q, k, v, offsets, indices):
        sizes = {"q_len": 200, "kv_len": 264, "q_block": 64, "kv_block": 64, "num_heads": 4}
        return sj.attention(q, k, v, mask=BlockMask.from_csr(offsets, indices, check=False, **sizes))

    out = call(q, k, v, mask.offsets, mask.indices)
    full = BlockMask.from_csr(
        mask.offsets, mask.indices, q_len=200, kv_len=264, q_block=64, kv_block=64, num_heads=4
    ).to(q)
    assert np.array_equal(host(out), host(sparsek.attention(q, k, v, mask=full)))


def test_layout_weights_and_rows_that_see_nothing(device, rng):
    arrays = inputs(rng, shapes=((2, 70, 4, 64), (2, 50, 2, 64), (2, 50, 2, 32)))
    want, lowprec = references(arrays, "float16", causal=True)
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in put(arrays, device, "float16"))
    call = jax.jit(lambda q, k, v: sj.attention(q, k, v, causal=True, layout="bhsd", return_weights=True))
    out, weights = call(q, k, v)
    assert weights.shape == (2, 4, 70, 50)
    reference.assert_close(host(out).swapaxes(1, 2), want.out, lowprec.out)
    reference.assert_close(host(weights), want.weights, lowprec.weights, what="weights")
    assert not host(out)[:, :, :20].any()


@pytest.mark.parametrize("shapes", [((0, 8, 2, 16),) * 3, ((1, 0, 2, 16), (1, 8, 2, 16), (1, 8, 2, 16))])
def test_empty_arrays(shapes):
    q, k, v = put([np.zeros(shape) for shape in shapes], jax.devices("cpu")[0], "float16")
    assert jax.jit(sj.attention)(q, k, v).shape == shapes[0]


def test_vmap(device, rng):
    q, k, v = put(inputs(rng, shapes=((3, *Q), (3, *K), (3, *V))), device, "float16")
    out = jax.vmap(lambda q, k: sj.attention(q, k, v[0]))(q, k)
    for each in range(3):
        assert np.array_equal(host(out[each]), host(sj.attention(q[each], k[each], v[0])))


def product(rng, dtype="float16", shape=(128, 192), block=(32, 64)):
    (dense,) = inputs(rng, dtype, [shape])
    keep = rng.random((shape[0] // block[0], shape[1] // block[1])) < 0.6
    return dense * keep.repeat(block[0], 0).repeat(block[1], 1)


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bsr_gemm(dtype, side, transposed, compiled, device, rng):
    dense = product(rng, dtype)
    shown = dense.T if transposed else dense
    (x,) = inputs(rng, dtype, [(shown.shape[1], 80) if side == "left" else (80, shown.shape[0])])
    (c,) = inputs(rng, dtype, [(shown.shape[0], 80) if side == "left" else (80, shown.shape[1])])
    kind = getattr(torch, dtype)
    w, a, c_ref = (torch.from_numpy(np.ascontiguousarray(y)).to(kind) for y in (shown, x, c))
    operands = (w, a) if side == "left" else (a, w)
    want = reference.matmul(*operands, 0.5, c_ref, 2.0)
    lowprec = reference.matmul(*operands, 0.5, c_ref, 2.0, dtype=kind)

    matrix = BSRMatrix.from_dense(put([dense], device, dtype)[0], (32, 64))

    def call(matrix, x, c):
        matrix = matrix.T if transposed else matrix
        a, b = (matrix, x) if side == "left" else (x, matrix)
        return sj.bsr_gemm(a, b, alpha=0.5, c=c, beta=2.0)

    out = (jax.jit(call) if compiled else call)(matrix, *put([x, c], device, dtype))
    assert out.dtype == dtype
    reference.assert_close(host(out), want, lowprec)


def test_bsr_gemm_of_a_constant_and_of_a_passed_transpose(device, rng):
    dense, (x,) = product(rng), inputs(rng, shapes=[(80, 192)])
    want = reference.matmul(torch.from_numpy(x), torch.from_numpy(dense.T.copy()))
    lowprec = reference.matmul(torch.from_numpy(x).half(), torch.from_numpy(dense.T.copy()).half(), dtype=torch.float16)
    matrix = BSRMatrix.from_dense(put([dense], device, "float16")[0], (32, 64))
    (x,) = put([x], device, "float16")
    for call in (
        lambda x, _: sparsek.bsr_gemm(x, matrix.T, out_dtype="float32"),
        lambda x, given: sj.bsr_gemm(x, given, out_dtype=jnp.float32),
    ):
        out = jax.jit(call)(x, matrix.T)
        assert out.dtype == jnp.float32
        reference.assert_close(host(out), want, lowprec)


def test_pytrees_come_back_as_they_were(rng):
    mask = some_mask(rng)
    matrix = BSRMatrix.from_dense(product(rng).astype(np.float16), (32, 64))
    doubled = jax.tree.map(lambda x: x * 2, matrix.T)
    assert isinstance(doubled, BSRMatrix)
    assert np.array_equal(doubled.to_dense(), 2 * matrix.to_dense().T)
    same = jax.tree.unflatten(*reversed(jax.tree.flatten(mask)))
    assert np.array_equal(same.to_dense(), mask.to_dense())
    assert len(jax.tree.leaves(matrix)) == 1


@pytest.mark.parametrize("padded", [False, True], ids=["compressed", "padded"])
def test_a_mask_that_comes_out_of_jit(padded, device, rng):
    q, k, v = put(inputs(rng), device, "float16")
    mask = some_mask(rng, padded)
    returned = jax.jit(lambda mask: mask)(mask.to(q))
    assert np.array_equal(returned.to_dense(), mask.to_dense())
    want = sparsek.attention(q, k, v, mask=mask.to(q))
    assert np.array_equal(host(sparsek.attention(q, k, v, mask=returned)), host(want))
    assert np.array_equal(host(jax.jit(sparsek.attention)(q, k, v, mask=returned)), host(want))


def small(**changes):
    shapes = {"q": (1, 8, 4, 16), "k": (1, 10, 2, 16), "v": (1, 10, 2, 16)} | changes
    return put([np.zeros(shape) for shape in shapes.values()], jax.devices("cpu")[0], "float32")


ATTENTION_ERRORS = [
    ({"q": (1, 8, 4)}, {}, ValueError, r"q: expected 4 axes \(bshd\), got shape \(1, 8, 4\)"),
    ({"v": (1, 11, 2, 16)}, {}, ValueError, r"v: expected length 10 \(that of k\), got 11"),
    ({"q": (1, 8, 3, 16)}, {}, ValueError, r"a multiple of k's 2, got 3"),
    ({}, {"layout": "sbhd"}, ValueError, r'layout: expected "bshd" or "bhsd"'),
    ({}, {"window": 3}, TypeError, r"window: expected \(left, right\) or None"),
    ({}, {"scale": float("inf")}, ValueError, r"scale: expected a finite number"),
    ({}, {"backend": "fast"}, ValueError, r'backend: expected one of .*cpu.*, got "fast"'),
    ({}, {"mask": np.ones((8, 10), bool)}, TypeError, r"mask: expected a sparsek.BlockMask"),
    ({}, {"mask": BlockMask.causal(8, 12)}, ValueError, r"mask: expected one made for q_len 8 and kv_len 10"),
    ({"q": (1, 8, 2, 400), "k": (1, 10, 2, 400)}, {}, NotImplementedError, r"(?s)no backend takes.*256, got 400"),
]


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize(("changes", "options", "kind", "message"), ATTENTION_ERRORS)
def test_attention_errors(changes, options, kind, message, compiled):
    def call(q, k, v):
        return sj.attention(q, k, v, **options)

    with pytest.raises(kind, match=message):
        (jax.jit(call) if compiled else call)(*small(**changes))


def test_bsr_gemm_errors(rng):
    matrix = BSRMatrix.from_dense(product(rng).astype(np.float32), (32, 64))
    (x,) = put([np.zeros((192, 8))], jax.devices("cpu")[0], "float32")
    for arguments, options, kind, message in [
        ((matrix, matrix.T), {}, NotImplementedError, "got two BSRMatrix"),
        ((x, x), {}, NotImplementedError, "got no BSRMatrix"),
        ((matrix, x[:100]), {}, ValueError, r"b: expected 192 rows"),
        ((matrix, x[0]), {}, ValueError, r"b: expected 2 axes, got shape \(8,\)"),
        ((matrix, x.astype(jnp.float16)), {}, TypeError, r"b: expected the dtype of a \(float32\), got float16"),
        ((matrix, x), {"beta": 1.0}, ValueError, r"c: expected a matrix for beta = 1.0, got None"),
        ((matrix, x), {"out_dtype": "int32"}, TypeError, r"out: expected dtype float16"),
        ((matrix, torch.zeros(192, 8)), {}, TypeError, r"b: expected a jax.Array or a NumPy array, got Tensor"),
    ]:
        with pytest.raises(kind, match=message):
            sj.bsr_gemm(*arguments, **options)


def test_what_compiled_programs_cannot_do_is_named(rng):
    q, k, v = small()
    mask = BlockMask.causal(8, 10, q_block=4, kv_block=4)
    with pytest.raises(NotImplementedError, match=r"sparsek.jax.attention has no gradient"):
        jax.grad(lambda q: sj.attention(q, k, v).sum())(q)
    with pytest.raises(NotImplementedError, match=r"out: expected None inside jax.jit"):
        jax.jit(lambda q: sparsek.attention(q, k, v, out=np.zeros(q.shape)))(q)
    with pytest.raises(TypeError, match=r"mask: expected indices to be a JAX or NumPy array, got Tensor: mask.to"):
        sj.attention(q, k, v, mask=mask.to(torch.zeros(1)))
    with pytest.raises(TypeError, match=r"q: expected a jax.Array or a NumPy array, got Tensor"):
        sj.attention(torch.zeros(1, 8, 4, 16), k, v)
    with pytest.raises(TypeError, match=r"one that jax.jit is tracing: do this outside of jit"):
        jax.jit(lambda mask: mask.density)(mask)


def test_a_backend_that_declines_is_named_when_the_program_runs():
    q, k, v = small()
    (name,) = {row.name for row in sparsek.backends() if row.name == "wmma"}
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"(?s)no backend takes.*{name}"):
        jax.jit(lambda q: sj.attention(q, k, v, backend=name))(q).block_until_ready()
    with pytest.raises(NotImplementedError, match=rf"(?s)no backend takes.*{name}"):
        sj.attention(q, k, v, backend=name)


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("sys.modules['jax'] = None", "sparsek.jax needs JAX: install it with pip install 'sparsek[jax]'"),
        ("import jax; del jax.enable_x64", "sparsek.jax needs JAX 0.8 or later, got"),
    ],
    ids=["none", "old"],
)
def test_without_jax_the_error_names_what_to_install(setup, message):
    program = f"import sys\n{setup}\nimport sparsek.jax"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert f"ImportError: {message}" in done.stderr
