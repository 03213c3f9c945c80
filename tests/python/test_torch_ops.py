"""sparsek.torch in torch programs: eager, traced, exported, mapped, under autocast and in CUDA graphs."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch.utils import _pytree as pytree
from torch_helpers import DEVICES, check_attention, normal, qkv, some_mask, sparse

import sparsek
import sparsek.torch
from sparsek import BlockMask, BSRMatrix


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()


def test_importing_sparsek_imports_neither_torch_nor_transformers():
    code = "import sys, sparsek; assert not {'torch', 'transformers', 'sparsek.torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_torch_is_named():
    code = "import sys; sys.modules['torch'] = None\nimport sparsek.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: sparsek.torch needs torch: pip install 'sparsek[torch]'" in done.stderr


# Eager


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (20, 5), "scale": 0.3}, {"return_lse": True}, {"return_weights": True}],
    ids=str,
)
def test_eager_attention_is_the_native_one(device, dtype, options, rng):
    q, k, v = qkv(rng, device, dtype)
    mask = some_mask(rng, q)
    got = sparsek.torch.attention(q, k, v, mask=mask, **options)
    want = sparsek.attention(q, k, v, mask=mask, **options)
    for a, b in zip(got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_the_operator_computes_the_same(device, dtype, layout, rng):
    q, k, v = qkv(rng, device, dtype)
    mask = some_mask(rng, q)
    arrays = [x.transpose(1, 2) for x in (q, k, v)] if layout == "bhsd" else [q, k, v]
    want = sparsek.attention(*arrays, mask=mask, causal=True, layout=layout, return_lse=True)
    arrays[1] = arrays[1].detach().requires_grad_()
    out, lse = sparsek.torch.attention(*arrays, mask=mask, causal=True, layout=layout, return_lse=True)
    assert torch.equal(out, want[0])
    assert torch.equal(lse, want[1])
    assert out.stride() == want[0].stride()


def test_out_is_written(rng):
    q, k, v = qkv(rng)
    out = torch.full_like(q, float("nan"))
    assert sparsek.torch.attention(q, k, v, out=out) is out
    check_attention(out, q, k, v)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("strided", [0, 1, 2])
def test_a_last_axis_that_is_not_contiguous_is_copied(strided, grad, rng):
    arrays = list(qkv(rng))
    arrays[strided] = arrays[strided].transpose(1, 3).contiguous().transpose(1, 3).requires_grad_(grad)
    out = sparsek.torch.attention(*arrays)
    check_attention(out, *arrays)
    assert out.is_contiguous()


def test_parameters_and_subclasses(rng):
    class Tagged(torch.Tensor):
        pass

    q, k, v = qkv(rng)
    want = sparsek.attention(q, k, v)
    with torch.no_grad():
        assert torch.equal(sparsek.torch.attention(torch.nn.Parameter(q), k, v), want)
    assert torch.equal(torch.Tensor(sparsek.torch.attention(q.as_subclass(Tagged), k, v)), want)


def test_fake_tensors(rng):
    with torch._subclasses.FakeTensorMode():
        q, k, v = (torch.empty(2, 64, heads, 32, dtype=torch.float16) for heads in (4, 2, 2))
        out, lse = sparsek.torch.attention(q, k, v[..., :24], return_lse=True)
        assert (out.shape, out.dtype) == ((2, 64, 4, 24), torch.float16)
        assert (lse.shape, lse.dtype) == ((2, 4, 64), torch.float32)
        with pytest.raises(ValueError, match=r"k: expected 4 axes \(bshd\), got shape \(2, 64, 2\)"):
            sparsek.torch.attention(q, k[..., 0], v)


# Traced


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_opcheck_of_attention(padded, heads_first, rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng))
    if heads_first:
        q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v))
    mask = some_mask(rng, q.detach())
    if padded:
        indices = torch.from_numpy(rng.random((1, 4, 3, 4)).argsort(-1)).int()
        mask = BlockMask.from_indices(indices, None, q_len=96, kv_len=128, q_block=32, kv_block=32)
    arrays = (mask.indices, mask.offsets, mask.counts, mask.bitmap_indices, mask.bitmaps)
    sizes = [96, 128, 32, 32, 1, 4]
    arguments = (q, k, v, *arrays, sizes, True, 50, None, 0.2, heads_first, "")
    torch.library.opcheck(torch.ops.sparsek.attention.default, arguments, test_utils=CHECKS)


@pytest.mark.parametrize("product", ["sparse-dense", "dense-transposed", "sparse-sparse", "sampled"])
def test_opcheck_of_bsr_gemm(product, rng):
    from sparsek.torch._structures import DENSE, flatten

    a, b = sparse(rng, 64, 96), sparse(rng, 80, 96).T
    pattern = DENSE
    if product == "sparse-dense":
        b = normal(rng, 96, 20)
    elif product == "dense-transposed":
        a = normal(rng, 33, 96)
    elif product == "sampled":
        a, b = normal(rng, 64, 30), normal(rng, 30, 96)
        pattern = flatten(sparse(rng, 64, 96))
    flat = []
    for operand in (a, b):
        values = operand.values if isinstance(operand, BSRMatrix) else operand
        flat += [values.detach().requires_grad_(), *flatten(operand)]
    arguments = (*flat, *pattern, 0.5, None, 0.0, None, "")
    torch.library.opcheck(torch.ops.sparsek.bsr_gemm.default, arguments, test_utils=CHECKS)


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_compiled_attention_with_changing_lengths(device, dtype, rng):
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, backend=counter)
    def run(q, k, v, mask):
        return 2 * sparsek.torch.attention(q + 0, k, v, mask=mask, causal=True)

    for length in (64, 96, 128, 160, 224):
        q, k, v = qkv(rng, device, dtype, q_len=length, kv_len=length)
        # The same masks in every run: a number of blocks that two of them share would be compiled in as a constant.
        mask = some_mask(np.random.default_rng(length), q, q_len=length, kv_len=length)
        assert torch.equal(run(q, k, v, mask), 2 * sparsek.attention(q, k, v, mask=mask, causal=True))
    assert counter.frame_count <= 2  # once for one length, once for all


@pytest.mark.filterwarnings("ignore")  # what Inductor imports warns
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_compiled_by_inductor_with_gradients(device, dtype, rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng, device, dtype))
    mask = some_mask(rng, q.detach())

    def run(q, k, v):
        return sparsek.torch.attention(q.relu(), k, v, mask=mask, window=(40, 40)).float().square().sum()

    wanted = torch.autograd.grad(run(q, k, v), (q, k, v))
    got = torch.autograd.grad(torch.compile(run, fullgraph=True)(q, k, v), (q, k, v))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3 if dtype == torch.float16 else 1e-5, atol=1e-3)


def test_blocks_chosen_inside_the_compiled_function(rng):
    def run(q, k, v):
        scores = torch.einsum("bqhd,bkhd->bhqk", *(x.unflatten(1, (-1, 32)).mean(2) for x in (q, k)))
        mask = BlockMask.from_indices(
            scores.topk(2).indices, None, q_len=96, kv_len=128, q_block=32, kv_block=32, check=False
        )
        return sparsek.torch.attention(q, k, v, mask=mask)

    q, k, v = qkv(rng, kv_heads=4)
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, v), run(q, k, v))


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_compiled_bsr_gemm(device, dtype, rng):
    weight = sparse(rng, 96, 64, device=device, dtype=dtype)
    weight_t = weight.T

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def run(x, values, weight_t):
        hidden = sparsek.torch.bsr_gemm(x, weight_t.with_values(values)).relu()
        sampled = sparsek.torch.bsr_gemm(hidden.T, x, out_pattern=weight)
        return hidden, sampled.values

    for rows in (7, 20):
        x = normal(rng, rows, 64, device=device, dtype=dtype)
        hidden, sampled = run(x, weight_t.values, weight_t)
        wanted = sparsek.bsr_gemm(x, weight_t).relu()
        assert torch.equal(hidden, wanted)
        assert torch.equal(sampled, sparsek.bsr_gemm(wanted.T, x, out_pattern=weight).values)


class Model(torch.nn.Module):
    def forward(self, q, k, v, mask=None):
        return sparsek.torch.attention(q, k, v, mask=mask, causal=True, layout="bhsd")


def saved_and_loaded(program, monkeypatch):
    # Some torch versions log this with a malformed message, which pytest turns into an error.
    monkeypatch.setattr(logging.getLogger("torch._export.serde.serialize"), "disabled", True)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


def test_export_with_dynamic_lengths(rng, monkeypatch):
    def inputs(batch, length):
        q, k, v = qkv(rng, batch=batch, q_len=length, kv_len=length)
        return [x.transpose(1, 2) for x in (q, k, v)]

    sizes = {0: torch.export.Dim("batch"), 2: torch.export.Dim("length")}
    program = torch.export.export(Model(), tuple(inputs(2, 64)), dynamic_shapes=(sizes, sizes, sizes))
    loaded = saved_and_loaded(program, monkeypatch)
    for batch, length in ((1, 33), (3, 100)):
        arrays = inputs(batch, length)
        assert torch.equal(loaded(*arrays), Model()(*arrays))


def test_export_with_a_mask(rng, monkeypatch):
    arrays = [x.transpose(1, 2) for x in qkv(rng)]
    mask = some_mask(rng, arrays[0])
    loaded = saved_and_loaded(torch.export.export(Model(), (*arrays, mask)), monkeypatch)
    assert torch.equal(loaded(*arrays, mask), Model()(*arrays, mask))


def test_mask_as_a_pytree(rng):
    q, k, v = qkv(rng)
    padded = BlockMask.from_indices(torch.zeros(1, 4, 3, 1, dtype=torch.int32), q_len=96, kv_len=128, q_block=32)
    for mask in (some_mask(rng, q), padded):
        leaves, spec = pytree.tree_flatten({"mask": mask})
        assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
        again = pytree.tree_unflatten([leaf.clone() for leaf in leaves], spec)["mask"]
        assert repr(again) == repr(mask)
        assert torch.equal(sparsek.attention(q, k, v, mask=again), sparsek.attention(q, k, v, mask=mask))


@pytest.mark.parametrize("transposed", [False, True])
def test_matrix_as_a_pytree(transposed, rng):
    matrix = sparse(rng, 64, 96).T if transposed else sparse(rng, 64, 96)
    doubled = pytree.tree_map_only(torch.Tensor, lambda x: 2 * x if x.is_floating_point() else x, matrix)
    assert torch.equal(doubled.to_dense(), 2 * matrix.to_dense())
    assert torch.equal(doubled.T.to_dense(), 2 * matrix.T.to_dense())


def test_vmap(rng):
    q, k, v = (torch.stack([x, 2 * x, x - 1]) for x in qkv(rng))
    mask = some_mask(rng, q)
    mapped = torch.vmap(lambda *x: sparsek.torch.attention(*x, mask=mask), in_dims=(0, None, 0))(q, k[0], v)
    for i in range(3):
        assert torch.equal(mapped[i], sparsek.attention(q[i], k[0], v[i], mask=mask))
    weight = sparse(rng, 64, 96)
    x = normal(rng, 3, 96, 5)
    mapped = torch.vmap(lambda x: sparsek.torch.bsr_gemm(weight, x))(x)
    assert torch.equal(mapped, torch.stack([sparsek.bsr_gemm(weight, each) for each in x]))


class Layer(torch.nn.Module):
    """Holds a mask and a matrix, as a user's module may."""

    def __init__(self, mask, weight):
        super().__init__()
        self.mask, self.weight_t = mask, weight.T

    def forward(self, x):
        """x: (1, S, H, D) to (S, rows of the weight)."""
        out = sparsek.torch.attention(x, x, x, mask=self.mask)
        return sparsek.torch.bsr_gemm(out[0].flatten(1), self.weight_t)


def test_a_module_that_holds_both(rng):
    x = normal(rng, 1, 96, 4, 16)
    layer = Layer(some_mask(rng, x, kv_len=96), sparse(rng, 80, 64))
    want = layer(x)
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), want)
    assert torch.equal(torch.export.export(layer, (x,)).module()(x), want)
    # After it was used, when it has views for the kernels.
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(again(x), want)
        assert torch.equal(again.weight_t.T.to_dense(), layer.weight_t.T.to_dense())


# Autocast


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_autocast(device, dtype, grad, rng):
    q, k, v = qkv(rng, device)
    low = [x.bfloat16() for x in (q, k, v)]
    weight = sparse(rng, 64, 96, device=device)
    x = normal(rng, 96, 5, device=device)
    q.requires_grad_(grad)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = sparsek.torch.attention(q, k, v)
        product = sparsek.torch.bsr_gemm(weight, x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, sparsek.attention(*low))
    assert torch.equal(product, sparsek.bsr_gemm(weight.with_values(weight.values.bfloat16()), x.bfloat16()))
    if grad:
        out.float().sum().backward()
        assert q.grad.dtype == torch.float32


# What it refuses


def test_refused(rng):
    q, k, v = qkv(rng)
    needs_grad = q.clone().requires_grad_()
    attention = sparsek.torch.attention
    for name, options in (("out", {"out": q}), ("return_weights", {"return_weights": True})):
        with pytest.raises(NotImplementedError, match=f"{name}: not available while tracing"):
            attention(needs_grad, k, v, **options)
    with pytest.raises(TypeError, match=r"q: expected a torch.Tensor, got ndarray"):
        attention(q.numpy(), k, v)
    with pytest.raises(TypeError, match=r"v: expected a torch.Tensor, got NoneType"):
        attention(needs_grad, k, None)
    numpy_mask = BlockMask.causal(96, 128)
    with pytest.raises(TypeError, match=r"mask: expected one of torch tensors \(mask.to\(q\)\), got one of ndarray"):
        attention(needs_grad, k, v, mask=numpy_mask)
    with pytest.raises(TypeError, match=r"mask: expected a sparsek.BlockMask .*, got Tensor"):
        attention(needs_grad, k, v, mask=torch.ones(96, 128))
    with pytest.raises(ValueError, match=r"mask: expected one made for q_len 96 and kv_len 128, got q_len 96 and kv_l"):
        attention(needs_grad, k, v, mask=BlockMask.causal(96, 96).to(q))
    with pytest.raises(ValueError, match=r'layout: expected "bshd" or "bhsd", got'):
        attention(needs_grad, k, v, layout="hsbd")
    with pytest.raises(TypeError, match=r"q: expected dtype float16, bfloat16 or float32, got float64"):
        attention(needs_grad.double(), k.double(), v.double())
    with pytest.raises(TypeError, match=r"a: expected a torch.Tensor, got ndarray"):
        sparsek.torch.bsr_gemm(q.numpy(), sparse(rng, 16, 16))
    with pytest.raises(NotImplementedError, match="out: not available while tracing"):
        sparsek.torch.bsr_gemm(needs_grad[0, 0], sparse(rng, 32, 32), out=q)
    with pytest.raises(ValueError, match=r"c: expected a matrix for beta = 2, got None"):
        sparsek.torch.bsr_gemm(needs_grad[0, 0], sparse(rng, 32, 32), beta=2)
