"""Gradients of sparsek.torch against those of the float64 formulas."""

from __future__ import annotations

import pytest
import reference
import torch
from attention_cases import CASES, dense_mask, inputs, make_mask
from torch.autograd import forward_ad
from torch_helpers import DEVICES, Largest, normal, qkv, some_mask, sparse

import sparsek.torch
from sparsek import BlockMask, BSRMatrix
from sparsek.torch import _attention_backward

CHOSEN = (
    "dense-113x203",
    "blocks-per-kv-head-partial",
    "causal-300x300",
    "d33",
    "d192-dv128",
    "mqa",
    "bhsd",
    "scale-negative",
    "window-causal",
    "window-right",
    "rows-that-see-nothing",
    "blocks-64-partial",
    "blocks-64x32-causal",
    "blocks-1-list-for-all",
    "blocks-per-batch",
    "blocks-odd-partial",
    "blocks-40-partial-window",
    "blocks-256-gqa",
    "blocks-none",
    "padded-lists-causal",
    "documents",
)


def formula_gradients(arrays, allowed, scale, weights, dtype):
    """Gradients of sum(out * weights[0]) + sum(lse * weights[1]), computed in `dtype`."""
    arrays = [x.detach().to(dtype).requires_grad_() for x in arrays]
    result = reference.attention(*arrays, allowed, scale, dtype)
    lse = torch.where(torch.isfinite(result.lse), result.lse, 0.0)
    loss = (result.out * weights[0].to(dtype)).sum() + (lse * weights[1].to(dtype)).sum()
    return torch.autograd.grad(loss, arrays)


def check_gradients(case, device, dtype, rng, names=("q", "k", "v")):
    arrays = [x.requires_grad_(name in names) for name, x in zip("qkv", inputs(case, dtype, device, rng), strict=True)]
    mask = make_mask(case, rng)
    rules = {"causal": case.causal, "window": case.window}
    dense = dense_mask(case, mask)
    allowed = reference.allowed_pairs(case.q_len, case.kv_len, mask=dense, device=device, **rules)

    given = [x.transpose(1, 2) for x in arrays] if case.layout == "bhsd" else arrays
    out, lse = sparsek.torch.attention(
        *given,
        mask=None if mask is None else mask.to(arrays[0].detach()),
        scale=case.scale,
        layout=case.layout,
        return_lse=True,
        **rules,
    )
    out = out.transpose(1, 2) if case.layout == "bhsd" else out
    weights = normal(rng, *out.shape, device=device, dtype=dtype), normal(rng, *lse.shape, device=device)
    finite_lse = torch.where(torch.isfinite(lse), lse, 0.0)
    loss = (out * weights[0]).sum(dtype=torch.float32) + (finite_lse * weights[1]).sum()
    wanted = [x for x in arrays if x.requires_grad]
    got = torch.autograd.grad(loss, wanted)
    expected = formula_gradients(arrays, allowed, case.scale, weights, torch.float64)
    lowprec = formula_gradients(arrays, allowed, case.scale, weights, dtype)
    for name, x in zip(names, got, strict=True):
        at = "qkv".index(name)
        assert x.dtype == dtype
        reference.assert_close(x, expected[at], lowprec[at], what=f"gradient of {name}")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in CHOSEN], ids=str)
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_case(case, device, dtype, rng):
    if device == "cuda" and case.head_dim % 8:
        pytest.skip(f"head_dim is {case.head_dim}, which no GPU backend takes")
    check_gradients(case, device, dtype, rng)


@pytest.mark.parametrize("name", ["mqa", "blocks-40-partial-window"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_low_precision_on_the_cpu(name, dtype, rng):
    (case,) = (case for case in CASES if case.name == name)
    check_gradients(case, "cpu", dtype, rng)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_gradient_of_one_input(name, rng):
    (case,) = (case for case in CASES if case.name == "gqa-4")
    check_gradients(case, "cpu", torch.float32, rng, names=(name,))


@pytest.mark.parametrize(
    "name", ["causal-300x300", "window-causal", "blocks-64-partial", "blocks-odd-partial", "rows-that-see-nothing"]
)
def test_many_stretches_of_queries(name, rng, monkeypatch):
    monkeypatch.setattr(_attention_backward, "_STRETCH_BYTES", 1 << 18)
    (case,) = (case for case in CASES if case.name == name)
    check_gradients(case, "cpu", torch.float32, rng)


def test_memory_of_the_backward_grows_with_one_length(rng, monkeypatch):
    length = 2048
    monkeypatch.setattr(_attention_backward, "_STRETCH_BYTES", 4 * 64 * length)
    q, k, v = qkv(rng, batch=1, q_len=length, kv_len=length, heads=1, kv_heads=1)
    mask = BlockMask.sliding_window(length, length, 500, q_block=64, kv_block=64).to(q)
    largest = Largest()
    with largest:
        _attention_backward.attention_backward(
            (q, q.new_zeros(1, 1, length)),
            (q, k, v),
            sparsek.attention(q, k, v, mask=mask, return_lse=True),
            mask,
            True,
            (None, None),
            None,
            False,
        )
    assert largest.elements <= 64 * length


def test_queries_that_see_nothing_have_no_gradient(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng, q_len=128, kv_len=64))
    out, lse = sparsek.torch.attention(q, k, v, causal=True, return_lse=True)
    assert torch.isneginf(lse[:, :, :64]).all()
    gradients = torch.autograd.grad((out.sum() + lse[:, :, 64:].sum()), (q, k, v))
    assert all(torch.isfinite(x).all() for x in gradients)
    assert (gradients[0][:, :64] == 0).all()


@pytest.mark.parametrize("sizes", [{"q_len": 0}, {"kv_len": 0}, {"batch": 0}], ids=str)
def test_nothing_in_nothing_out(sizes, rng):
    # Not from NumPy, whose empty arrays have strides of 0.
    q, k, v = (torch.zeros(x.shape, requires_grad=True) for x in qkv(rng, **sizes))
    gradients = torch.autograd.grad(sparsek.torch.attention(q, k, v).sum(), (q, k, v))
    assert [x.shape for x in gradients] == [x.shape for x in (q, k, v)]
    assert all((x == 0).all() for x in gradients)


def test_same_bits_every_time(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng))
    mask = some_mask(rng, q.detach())

    def gradients():
        return torch.autograd.grad(sparsek.torch.attention(q, k, v, mask=mask).square().sum(), (q, k, v))

    assert all(torch.equal(a, b) for a, b in zip(gradients(), gradients(), strict=True))


def test_gradient_under_autocast_is_computed_in_float32(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng))
    low = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = torch.autograd.grad(sparsek.torch.attention(q, k, v).sum(), (q, k, v))
    want = torch.autograd.grad(sparsek.torch.attention(*low).sum(), low)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b.float())


def test_second_derivatives_are_refused(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng))
    (gradient,) = torch.autograd.grad(sparsek.torch.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"sparsek.torch.attention: expected a first derivative"):
        gradient.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # by torch
def test_forward_mode_derivatives_are_refused(rng):
    """They would be zero without a word."""
    q, k, v = qkv(rng)
    weight, x = sparse(rng, 32, 32), normal(rng, 32, 5)
    refused = pytest.raises(NotImplementedError, match=r"sparsek.torch.\w+: expected tensors without tangents")
    for function, tensor in (
        (lambda q: sparsek.torch.attention(q, k, v), q),
        (lambda v: sparsek.torch.attention(q, k, v, return_lse=True)[1], v),
        (lambda x: sparsek.torch.bsr_gemm(weight, x), x),
        (lambda values: sparsek.torch.bsr_gemm(weight.with_values(values), x), weight.values),
        (lambda c: sparsek.torch.bsr_gemm(weight, x, beta=1.0, c=c), x),
    ):
        with refused:
            torch.func.jvp(function, (tensor,), (tensor,))
        with forward_ad.dual_level(), refused:
            function(forward_ad.make_dual(tensor, tensor))
        with forward_ad.dual_level():
            function(tensor)
    with refused:
        torch.func.jvp(torch.vmap(lambda q: sparsek.torch.attention(q, k, v)), (q[None],), (q[None],))


# Products


def with_gradient(operand):
    if isinstance(operand, BSRMatrix):
        return operand.with_values(operand.values.detach().clone().requires_grad_())
    return operand.detach().clone().requires_grad_()


def values_of(operand):
    return operand.values if isinstance(operand, BSRMatrix) else operand


def densified(operand, dtype):
    """A dense matrix of that dtype that depends differentiably on the operand's values."""
    values = values_of(operand).to(dtype)
    if not isinstance(operand, BSRMatrix):
        return values
    blocks = values if operand.value_indices is None else values[operand.value_indices.long()]
    (rows, cols), (bm, bk) = operand.shape, operand.block_shape
    at = places(operand)
    dense = values.new_zeros(rows // bm, cols // bk, bm, bk).index_put(at, blocks)
    return dense.transpose(1, 2).reshape(rows, cols)


def places(matrix):
    """Block row and block column of every entry."""
    counts = matrix.row_offsets.diff()
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return rows, matrix.col_indices.long()


def sampled(dense, pattern):
    """The values of a matrix of the pattern's structure, in its order of values."""
    (rows, cols), (bm, bk) = pattern.shape, pattern.block_shape
    blocks = dense.view(rows // bm, bm, cols // bk, bk).transpose(1, 2)[places(pattern)]
    if pattern.value_indices is None:
        return blocks
    return torch.zeros_like(blocks).index_put((pattern.value_indices.long(),), blocks)


PRODUCTS = {
    "sparse-dense": lambda a, b, x, y: (a, x),
    "transposed-dense": lambda a, b, x, y: (b.T, y.T),
    "dense-sparse": lambda a, b, x, y: (y, b),
    "dense-transposed": lambda a, b, x, y: (x.T, a.T),
    "sparse-sparse": lambda a, b, x, y: (a, b),
    "transposed-transposed": lambda a, b, x, y: (b.T, a.T),
}


@pytest.mark.parametrize("product", [*PRODUCTS, "sampled", "sampled-transposed"])
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_bsr_gemm(product, device, dtype, rng):
    def dense(*shape):
        return normal(rng, *shape, device=device, dtype=dtype)

    a = sparse(rng, 64, 96, (16, 32), device, dtype)
    b = sparse(rng, 96, 80, (32, 16), device, dtype)
    pattern = None
    if product.startswith("sampled"):
        pattern = b.T if product.endswith("transposed") else a
        a, b = dense(pattern.shape[0], 40), dense(40, pattern.shape[1])
    else:
        a, b = PRODUCTS[product](a, b, dense(96, 50), dense(40, 96))
    a, b = with_gradient(a), with_gradient(b)
    out = sparsek.torch.bsr_gemm(a, b, alpha=0.7, out_pattern=pattern)
    weights = normal(rng, *values_of(out).shape, device=device, dtype=dtype)
    inputs = values_of(a), values_of(b)
    got = torch.autograd.grad((values_of(out) * weights).sum(dtype=torch.float32), inputs)

    def formula(dtype):
        result = 0.7 * (densified(a, dtype) @ densified(b, dtype))
        result = result if pattern is None else sampled(result, pattern)
        return torch.autograd.grad((result * weights.to(dtype)).sum(), inputs)

    wanted, lowprec = formula(torch.float64), formula(dtype)
    for name, x, want, low in zip("ab", got, wanted, lowprec, strict=True):
        reference.assert_close(x, want, low, what=f"gradient of {name}")


def test_bsr_gemm_with_c(rng):
    a, x, c = sparse(rng, 64, 96), normal(rng, 96, 20), normal(rng, 64, 20).requires_grad_()
    out = sparsek.torch.bsr_gemm(a, x, c=c, beta=0.25)
    reference.assert_close(
        out.detach(), a.to_dense() @ x + 0.25 * c.detach(), (a.to_dense() @ x + 0.25 * c.detach()).bfloat16()
    )
    (gradient,) = torch.autograd.grad(out.sum(), c)
    assert torch.equal(gradient, torch.full_like(c, 0.25))


def test_bsr_gemm_out_dtype(rng):
    a, x = with_gradient(sparse(rng, 64, 96, dtype=torch.bfloat16)), normal(rng, 96, 20, dtype=torch.bfloat16)
    out = sparsek.torch.bsr_gemm(a, x, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert a.values.grad.dtype == torch.bfloat16


def test_what_is_kept_of_a_structure_dies_with_it(rng):
    from sparsek.torch import _structures

    a, x = with_gradient(sparse(rng, 64, 96)), normal(rng, 96, 20).requires_grad_()
    before = len(_structures._kept)
    sparsek.torch.bsr_gemm(a, x).sum().backward()
    (kept,) = (_structures._kept[key] for key in [a.row_offsets])
    transposed = kept.transposed
    assert transposed is not None
    sparsek.torch.bsr_gemm(a, x).sum().backward()
    assert _structures._kept[a.row_offsets].transposed is transposed
    del a, kept, transposed
    assert len(_structures._kept) == before


def test_training_lowers_the_loss(rng):
    weight = sparse(rng, 64, 96)
    values = torch.nn.Parameter(weight.values.clone())
    x, target = normal(rng, 40, 64), normal(rng, 40, 96)
    optimizer = torch.optim.SGD([values], lr=0.05)
    losses = []
    for _ in range(10):
        loss = (sparsek.torch.bsr_gemm(x, weight.with_values(values)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
