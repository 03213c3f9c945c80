"""Every attention backend against the float64 formula."""

from __future__ import annotations

import pytest
import reference
import torch
from attention_cases import CASES, Case, dense_mask, inputs, make_mask, random_blocks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparsek
from sparsek import BlockMask, attention

BACKENDS = [
    pytest.param("cpu", torch.float32, id="cpu-float32"),
    pytest.param("cpu", torch.float16, id="cpu-float16"),
    pytest.param("cpu", torch.bfloat16, id="cpu-bfloat16"),
    pytest.param("sm90", torch.float16, id="sm90-float16", marks=pytest.mark.gpu),
    pytest.param("sm90", torch.bfloat16, id="sm90-bfloat16", marks=pytest.mark.gpu),
    pytest.param("wmma", torch.float16, id="wmma-float16", marks=pytest.mark.gpu),
    pytest.param("wmma", torch.bfloat16, id="wmma-bfloat16", marks=pytest.mark.gpu),
]
ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("sm90", "wmma")]


def device_of(backend: str) -> str:
    return "cpu" if backend == "cpu" else "cuda"


def reasons_to_decline(backend: str, case: Case, mask: BlockMask | None) -> list[str]:
    """Patterns of what the backend says of a case that it does not take; none where it takes it."""
    odd_rows = case.head_dim % 8 != 0 or case.dv % 8 != 0
    reasons = []
    if backend == "sm90":
        if odd_rows:
            reasons.append(r"has rows at multiples of \d+ bytes, expected 16")
        if case.scale is not None and case.scale <= 0:
            reasons.append(r"scale is ")
        if mask is not None and (mask.q_block % 64 or mask.kv_block % 16):
            reasons.append(r"mask blocks are \d+ x \d+")
    return reasons


def run_case(case: Case, backend: str, dtype: torch.dtype, rng) -> None:
    device = device_of(backend)
    q, k, v = inputs(case, dtype, device, rng)
    mask = make_mask(case, rng)
    allowed = reference.allowed_pairs(
        case.q_len,
        case.kv_len,
        mask=dense_mask(case, mask),
        causal=case.causal,
        window=case.window,
        device=device,
    )

    def as_given(array):
        return array.transpose(1, 2) if case.layout == "bhsd" else array

    out = torch.full((case.batch, case.q_len, case.heads, case.dv), float("nan"), dtype=dtype, device=device)
    out = out.transpose(1, 2).contiguous() if case.layout == "bhsd" else out
    arguments = {
        "mask": None if mask is None else mask.to(q),
        "causal": case.causal,
        "window": case.window,
        "scale": case.scale,
        "layout": case.layout,
        "backend": backend,
    }
    reasons = reasons_to_decline(backend, case, mask)
    if reasons:
        with pytest.raises(NotImplementedError, match=rf"{backend}: .*({'|'.join(reasons)})"):
            attention(as_given(q), as_given(k), as_given(v), out=out, **arguments)
        return

    result, lse = attention(as_given(q), as_given(k), as_given(v), out=out, return_lse=True, **arguments)
    assert result is out
    expected = reference.attention(q, k, v, allowed, case.scale)
    lowprec = reference.attention(q, k, v, allowed, case.scale, dtype)
    limit = 2e-3 if dtype == torch.float16 and case.scale is None else None
    reference.assert_close(as_given(result), expected.out, lowprec.out, what="out", limit=limit)
    reference.assert_close(lse, expected.lse, lowprec.lse.float(), what="lse")

    # Same input, same bits; and the probabilities, by the way that writes them.
    once_more = attention(as_given(q), as_given(k), as_given(v), **arguments)
    assert torch.equal(once_more, result)
    again, weights = attention(as_given(q), as_given(k), as_given(v), return_weights=True, **arguments)
    reference.assert_close(as_given(again), expected.out, lowprec.out, what="out beside weights", limit=limit)
    reference.assert_close(weights, expected.weights, lowprec.weights, what="weights")


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_case(case, backend, dtype, rng):
    run_case(case, backend, dtype, rng)


@st.composite
def random_cases(draw, head_dims):
    kv_heads = draw(st.integers(1, 3))
    q_len, kv_len = draw(st.integers(1, 200)), draw(st.integers(1, 200))
    bound = st.none() | st.integers(0, 220)
    mask = None
    if draw(st.booleans()):
        q_block = st.integers(1, 130) | st.sampled_from([64, 128, 192])
        kv_block = st.integers(1, 130) | st.sampled_from([16, 32, 48, 64, 128])
        density, lists = draw(st.floats(0, 1)), draw(st.sampled_from([1, kv_heads, None]))
        mask = random_blocks(draw(q_block), draw(kv_block), density, heads=lists, partial=draw(st.booleans()))
    return Case(
        "random",
        q_len,
        kv_len,
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        head_dim=draw(head_dims),
        value_dim=draw(head_dims),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.tuples(bound, bound)),
        mask=mask,
        layout=draw(st.sampled_from(["bshd", "bhsd"])),
    )


RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@RANDOM
@given(case=random_cases(st.integers(1, 80)), dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_random_case_on_cpu(case, dtype, rng):
    run_case(case, "cpu", dtype, rng)


@pytest.mark.gpu
@RANDOM
@pytest.mark.parametrize("backend", ["sm90", "wmma"])
@given(
    case=random_cases(st.integers(1, 32).map(lambda n: 8 * n)),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
)
def test_random_case_on_gpu(backend, case, dtype, rng):
    run_case(case, backend, dtype, rng)


def test_result_does_not_depend_on_thread_count(rng):
    case = Case("threads", 300, 400, heads=3, kv_heads=3, mask=random_blocks(64, 32, 0.4))
    q, k, v = inputs(case, torch.float32, "cpu", rng)
    mask = make_mask(case, rng)
    results = []
    try:
        for count in (1, 2, 3, 7):
            sparsek.set_num_threads(count)
            assert sparsek.num_threads() == count
            results.append(attention(q, k, v, mask=mask))
    finally:
        sparsek.set_num_threads(0)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["cpu", *ON_GPU])
def test_empty(backend, causal):
    device, dtype = device_of(backend), torch.float16

    def zeros(*shape):
        return torch.zeros(*shape, dtype=dtype, device=device)

    for shape in ((2, 0, 4, 64), (0, 5, 4, 64), (2, 5, 0, 64)):
        kv = zeros(shape[0], 7, shape[2], 64)
        out, lse = attention(zeros(*shape), kv, kv, causal=causal, return_lse=True, backend=backend)
        assert out.shape == shape
        assert lse.shape == (shape[0], shape[2], shape[1])
    no_keys = zeros(2, 0, 4, 64)
    out, lse = attention(zeros(2, 5, 4, 64), no_keys, no_keys, causal=causal, return_lse=True, backend=backend)
    assert torch.equal(out, zeros(2, 5, 4, 64))
    assert torch.isneginf(lse).all()
    _, weights = attention(zeros(2, 5, 4, 64), no_keys, no_keys, return_weights=True, backend=backend)
    assert weights.shape == (2, 4, 5, 0)


@pytest.mark.parametrize("backend", ["cpu", *ON_GPU])
def test_strides(backend, rng):
    """Slices, broadcast heads and packed qkv are read where they are."""
    device = device_of(backend)
    case = Case("strides", 90, 90, heads=4, kv_heads=4)
    packed = torch.from_numpy(rng.standard_normal((2, 90, 3, 4, 64), dtype="float32")).to(device, torch.float16)
    q, k, v = packed.unbind(2)
    allowed = reference.allowed_pairs(90, 90, device=device)
    expected = reference.attention(q, k, v, allowed)
    lowprec = reference.attention(q, k, v, allowed, dtype=torch.float16)
    reference.assert_close(attention(q, k, v, backend=backend), expected.out, lowprec.out, limit=2e-3)

    wide = torch.full((2, 180, 4, 128), float("nan"), dtype=torch.float16, device=device)
    out = wide[:, ::2, :, 64:]
    attention(q, k, v, out=out, backend=backend)
    reference.assert_close(out, expected.out, lowprec.out, limit=2e-3)
    assert torch.isnan(wide[:, 1::2]).all()
    assert torch.isnan(wide[:, :, :, :64]).all()

    q, k, v = inputs(case, torch.float16, device, rng)
    shared_k, shared_v = (x[:1, :, :1].expand(2, 90, 4, 64) for x in (k, v))
    expected = reference.attention(q, shared_k, shared_v, allowed)
    lowprec = reference.attention(q, shared_k, shared_v, allowed, dtype=torch.float16)
    reference.assert_close(attention(q, shared_k, shared_v, backend=backend), expected.out, lowprec.out, limit=2e-3)


@pytest.mark.parametrize("backend", ["cpu", *ON_GPU])
def test_large_scores_do_not_overflow(backend, rng):
    """Scores past the largest float16 still give a probability distribution."""
    device = device_of(backend)
    case = Case("large", 64, 96, batch=1, heads=1, kv_heads=1)
    q, k, v = inputs(case, torch.float16, device, rng)
    out = attention(q * 200, k * 200, v, scale=1.0, backend=backend)
    assert torch.isfinite(out).all()
    _, weights = attention(q * 200, k * 200, v, scale=1.0, return_weights=True, backend=backend)
    assert torch.allclose(weights.float().sum(-1), torch.ones(1, 1, 64, device=device), atol=1e-2)


@pytest.mark.parametrize("backend", ["cpu", *ON_GPU])
def test_nan_stays_in_its_rows(backend, rng):
    device = device_of(backend)
    case = Case("nan", 130, 140, batch=1, heads=2, kv_heads=2)
    q, k, v = inputs(case, torch.float16, device, rng)
    q[0, 7, 1] = float("nan")
    out = attention(q, k, v, backend=backend)
    wrong = torch.isnan(out)
    assert wrong[0, 7, 1].all()
    assert wrong.sum() == 64


@pytest.mark.parametrize("backend", ["cpu", *ON_GPU])
def test_garbage_in_unchecked_lists_touches_nothing_else(backend, rng):
    """Wrong indices, counts and bitmap indices count as absent."""
    device = device_of(backend)
    case = Case("garbage", 256, 256, batch=1, heads=2, kv_heads=2)
    q, k, v = inputs(case, torch.float16, device, rng)
    indices = torch.from_numpy(rng.integers(-(2**31), 2**31 - 1, (1, 2, 4, 6), dtype="int32"))
    indices[..., 0] = torch.arange(4, dtype=torch.int32)
    counts = torch.tensor([[[6, 2**31 - 1, 1, -5], [6, 6, -(2**31), 3]]], dtype=torch.int32)
    lengths = {"q_len": 256, "kv_len": 256, "q_block": 64, "kv_block": 64, "check": False}
    mask = BlockMask.from_indices(indices.to(device), counts.to(device), **lengths)
    kept = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    for head in range(2):
        for q_block in range(4):
            for index in indices[0, head, q_block, : max(0, min(6, int(counts[0, head, q_block])))].tolist():
                if 0 <= index < 4:
                    kept[0, head, q_block, index] = True
    dense = kept.repeat_interleave(64, 2).repeat_interleave(64, 3)
    allowed = reference.allowed_pairs(256, 256, mask=dense, device=device)
    expected = reference.attention(q, k, v, allowed)
    lowprec = reference.attention(q, k, v, allowed, dtype=torch.float16)
    out = attention(q, k, v, mask=mask, backend=backend)
    reference.assert_close(out, expected.out, lowprec.out, limit=2e-3)

    offsets = torch.from_numpy(rng.integers(-(2**62), 2**62, 9, dtype="int64"))
    flat = torch.from_numpy(rng.integers(-(2**31), 2**31 - 1, 20, dtype="int32"))
    csr = BlockMask.from_csr(offsets.to(device), flat.to(device), num_heads=2, **lengths)
    assert torch.isfinite(attention(q, k, v, mask=csr, backend=backend)).all()
