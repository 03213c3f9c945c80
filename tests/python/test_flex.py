"""mask_mods of torch tensors: what bounds tell of blocks, what is evaluated, and the way to FlexAttention and back."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_helpers import check_built, document_of_token, random_dense
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask
from torch_helpers import Largest

from sparsek import BlockMask, _mask_blocks
from sparsek._mask_bounds import Bounds, of_blocks

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

table = torch.from_numpy(np.random.default_rng(0).integers(-3, 9, 200))
flags = torch.arange(200) % 13 < 4
of_heads = torch.stack([table, 5 - table, table // 2])


def dense_of(mask_mod, q_len, kv_len, heads=1, device="cpu"):
    q_idx, kv_idx = (torch.arange(length, device=device) for length in (q_len, kv_len))
    q_idx, kv_idx = q_idx[:, None], kv_idx[None, :]
    batch = torch.tensor(0, device=device)
    seen = [mask_mod(batch, torch.tensor(h, device=device), q_idx, kv_idx) for h in range(heads)]
    return torch.stack([each.expand(q_len, kv_len) for each in seen]).cpu().numpy()


MASK_MODS = {
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q - k <= 20) & (q - k > -7),
    "window-abs": lambda b, h, q, k: (q - k).abs() < 15,
    "documents": lambda b, h, q, k: document_of_token[q] == document_of_token[k],
    "tables": lambda b, h, q, k: table[q] + 2 * table[k] > 3,
    "table-of-head": lambda b, h, q, k: of_heads[h, k] >= of_heads[h, q],
    "flags": lambda b, h, q, k: flags[q] | ~flags[k],
    "dilated": lambda b, h, q, k: ((q - k) % 8 == 0) & (k <= q),
    "blocks": lambda b, h, q, k: (q // 16 == k // 16) ^ (h == 1),
    "shift": lambda b, h, q, k: (k >> 4) != (q >> 5),
    "global": lambda b, h, q, k: torch.isin(k, torch.tensor([3, 4, 77])) | (q == 5),
    "where": lambda b, h, q, k: torch.where(q < 40, k < 90, k >= q - 30),
    "clamped": lambda b, h, q, k: (q + 10).clamp(max=60) > torch.minimum(k, 2 * q) - torch.maximum(k - 9, q),
    "negated": lambda b, h, q, k: torch.logical_not(-q * 3 + k < -50) & torch.logical_or(k > 3, q > 30),
    "float": lambda b, h, q, k: (q / 3).floor() * 2.5 > k.float(),
    "of-keys": lambda b, h, q, k: k < 50,
    "of-head": lambda b, h, q, k: h != 1,
    "everything": lambda b, h, q, k: q >= 0,
    "nothing": lambda b, h, q, k: q < 0,
    "offsets": lambda b, h, q, k: and_masks(lambda b, h, q, k: q >= k)(b, h, q + 3, k + torch.tensor(2)),
    # No rules for these: every pair is evaluated.
    "sine": lambda b, h, q, k: torch.sin(q - 1.3 * k) > 0,
    "two-indices": lambda b, h, q, k: (table[:100, None] > table[None, :100])[q % 100, k % 100],
    "bits": lambda b, h, q, k: (q & k) == 0,
    "negative-lookup": lambda b, h, q, k: table[q - 60] > table[k],
    "in-place": lambda b, h, q, k: (q - k).mul_(2) > 5,
    "wraps": lambda b, h, q, k: (q * 2**62) // 2**60 > k,
}


@pytest.mark.parametrize("name", MASK_MODS)
@pytest.mark.parametrize(("q_len", "kv_len", "block"), [(128, 128, (32, 32)), (113, 149, (16, 40)), (7, 130, (7, 1))])
def test_exact(name, q_len, kv_len, block):
    mask_mod = MASK_MODS[name]
    mask = BlockMask.from_mask_mod(
        mask_mod, heads=3, q_len=q_len, kv_len=kv_len, q_block=block[0], kv_block=block[1], device="cpu"
    )
    assert isinstance(mask.indices, torch.Tensor)
    check_built(mask, dense_of(mask_mod, q_len, kv_len, heads=3))


# Random formulas of everything that has a rule.


def numbers(depth):
    leaves = st.sampled_from(["q", "k", "table[q]", "table[k]", "of_heads[h, q]", "flags[k].long()"])
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    pairs = st.sampled_from(["{} + {}", "{} - {}", "{} * {}", "torch.minimum({}, {})", "torch.maximum({}, {})"])
    by_number = st.sampled_from(
        ["({}) // 7", "({}) % 5", "-({})", "({}).abs()", "({}) * -3", "({}).clamp(-20, 40)", "({}) >> 2", "9 - ({})"]
    )
    return st.one_of(
        leaves,
        st.builds(lambda form, a, b: f"({form.format(a, b)})", pairs, inner, inner),
        st.builds(lambda form, a: f"({form.format(a)})", by_number, inner),
    )


def truths(depth):
    comparisons = st.builds(
        lambda op, a, b: f"({a} {op} {b})", st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers(2), numbers(2)
    )
    leaves = st.one_of(comparisons, st.sampled_from(["flags[q]", "flags[k]", "(h > 0)", "torch.isin(table[q], table)"]))
    if depth == 0:
        return leaves
    inner = truths(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda op, a, b: f"({a} {op} {b})", st.sampled_from("&|^"), inner, inner),
        st.builds(lambda a: f"(~{a})", inner),
        st.builds(lambda a, b, c: f"torch.where({a}, {b}, {c})", inner, inner, inner),
    )


@settings(max_examples=120, deadline=None)
@given(truths(2), st.integers(1, 150), st.integers(1, 150), st.sampled_from([(32, 32), (16, 5), (1, 64)]))
def test_random_formulas(formula, q_len, kv_len, block):
    scope = {"torch": torch, "table": table, "flags": flags, "of_heads": of_heads}
    mask_mod = eval(f"lambda b, h, q, k: {formula}", scope)
    mask = BlockMask.from_mask_mod(
        mask_mod, heads=2, q_len=q_len, kv_len=kv_len, q_block=block[0], kv_block=block[1], device="cpu"
    )
    check_built(mask, dense_of(mask_mod, q_len, kv_len, heads=2))


def block_bounds(q_blocks, kv_blocks, block):
    def bounds(count):
        low = torch.arange(count) * block
        return low, low + block - 1

    queries, keys = bounds(q_blocks), bounds(kv_blocks)
    return Bounds(*(x[:, None] for x in queries)), Bounds(*(x[None, :] for x in keys))


@pytest.mark.parametrize(
    "name", [name for name in MASK_MODS if name not in ("sine", "two-indices", "bits", "negative-lookup", "in-place")]
)
def test_bounds_are_known(name):
    if name == "wraps":
        pytest.skip("unknown on purpose")
    zero = torch.tensor(0)
    assert of_blocks(MASK_MODS[name], zero, zero, *block_bounds(4, 4, 32)) is not None


@pytest.mark.parametrize("name", ["sine", "two-indices", "bits", "negative-lookup", "in-place", "wraps"])
def test_bounds_are_not_known(name):
    zero = torch.tensor(0)
    assert of_blocks(MASK_MODS[name], zero, zero, *block_bounds(4, 4, 32)) is None


@pytest.mark.parametrize("name", ["causal", "window", "documents", "blocks", "float", "flags"])
def test_bounds_of_these_are_exact(name):
    zero = torch.tensor(0)
    must, may = of_blocks(MASK_MODS[name], zero, zero, *block_bounds(4, 4, 32))
    dense = dense_of(MASK_MODS[name], 128, 128).reshape(4, 32, 4, 32)
    assert (must.numpy() == dense.all((1, 3))).all()
    assert (may.numpy() == dense.any((1, 3))).all()


def long_mask_mod(length, device="cpu"):
    document = torch.arange(length, device=device) // 5000

    def mask_mod(b, h, q_idx, kv_idx):
        window = (q_idx >= kv_idx) & (q_idx - kv_idx < 4096)
        return window & (document[q_idx] == document[kv_idx])

    return mask_mod


def test_only_partial_blocks_are_evaluated():
    length, block, evaluated = 16384, 128, []
    mask_mod = long_mask_mod(length)

    def watched(b, h, q_idx, kv_idx):
        if not isinstance(q_idx, Bounds):
            evaluated.append(np.prod(np.broadcast_shapes(q_idx.shape, kv_idx.shape)))
        return mask_mod(b, h, q_idx, kv_idx)

    mask = BlockMask.from_mask_mod(watched, q_len=length, kv_len=length, device="cpu")
    partial = int((mask.bitmap_indices >= 0).sum())
    assert partial * block * block <= sum(evaluated) <= (partial + 2 * length // block) * block * block


@pytest.mark.parametrize("device", DEVICES)
def test_a_long_mask_takes_memory_for_its_blocks_only(device):
    length = 131072
    mask_mod = long_mask_mod(length, device)
    largest = Largest()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    with largest:
        mask = BlockMask.from_mask_mod(mask_mod, q_len=length, kv_len=length, device=device)
    assert largest.elements <= _mask_blocks._PAIRS
    if device == "cuda":
        assert torch.cuda.max_memory_allocated() - before < 200e6
    assert mask.device.startswith(device)
    document = np.arange(length) // 5000
    first = np.maximum(np.arange(length) - 4095, document * 5000)
    assert mask.num_pairs == (np.arange(length) - first + 1).sum()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["window", "documents-gpu", "sine", "dilated"])
def test_on_the_gpu(name):
    document = document_of_token.cuda()
    mask_mod = MASK_MODS.get(name, lambda b, h, q, k: document[q] == document[k])
    mask = BlockMask.from_mask_mod(mask_mod, q_len=113, kv_len=149, q_block=16, kv_block=40, device="cuda")
    assert mask.device.startswith("cuda")
    check_built(mask.to("cpu"), dense_of(mask_mod, 113, 149, device="cuda"))


def test_equal_hashes_do_not_merge_bitmaps(monkeypatch):
    made = _mask_blocks._Patterns.__init__

    def all_hashes_are_zero(self, grid, device):
        made(self, grid, device)
        self._multipliers = torch.zeros_like(self._multipliers)

    monkeypatch.setattr(_mask_blocks._Patterns, "__init__", all_hashes_are_zero)
    dense = random_dense(np.random.default_rng(3), (1, 1, 64, 64), 16, 16)
    pairs = torch.as_tensor(dense[0, 0])
    mask = BlockMask.from_mask_mod(
        lambda b, h, q, k: pairs[q, k], q_len=64, kv_len=64, q_block=16, kv_block=16, device="cpu"
    )
    np.testing.assert_array_equal(mask.to_dense(), dense)


def test_what_only_the_places_of_pairs_suit_is_asked_in_stripes():
    columns = torch.arange(50) % 3 == 0  # a constant row of the width of all keys
    mask = BlockMask.from_mask_mod(
        lambda b, h, q, k: columns & (q > 10), q_len=40, kv_len=50, q_block=16, kv_block=16, device="cpu"
    )
    check_built(mask, ((np.arange(50) % 3 == 0) & (np.arange(40)[:, None] > 10))[None, None])


@pytest.mark.parametrize(
    ("mask_mod", "error", "message"),
    [
        (lambda b, h, q, k: q - k, TypeError, "mask_mod: expected a bool torch array, got int64 torch"),
        (lambda b, h, q, k: torch.ones(2, 8, 9) > 0, ValueError, re.escape("broadcasts to (8, 9), got shape (2")),
        (lambda b, h, q, k: "no", TypeError, "mask_mod: expected an array"),
    ],
)
def test_refused(mask_mod, error, message):
    with pytest.raises(error, match=message):
        BlockMask.from_mask_mod(mask_mod, q_len=8, kv_len=9, device="cpu")


def test_like_and_device_are_not_given_together():
    with pytest.raises(ValueError, match="device: expected None beside like"):
        BlockMask.from_mask_mod(MASK_MODS["causal"], q_len=8, kv_len=8, device="cpu", like=torch.empty(0))


# To FlexAttention and back


def random_mask(rng, batches, heads, q_len, kv_len, block):
    dense = random_dense(rng, (batches, heads, q_len, kv_len), *block)
    return BlockMask.from_dense(dense, q_block=block[0], kv_block=block[1]), dense


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("q_len", "kv_len", "block"), [(128, 256, (64, 64)), (100, 149, (32, 16)), (40, 50, (7, 11))])
@pytest.mark.parametrize(("batches", "heads"), [(1, 1), (2, 3)])
def test_to_flex_and_back(device, q_len, kv_len, block, batches, heads, rng):
    mask, dense = random_mask(rng, batches, heads, q_len, kv_len, block)
    flex = mask.to_flex(device)
    assert flex.kv_indices.device.type == device
    assert flex.shape == (batches, heads, q_len, kv_len)
    assert tuple(flex.BLOCK_SIZE) == block
    again = BlockMask.from_flex(flex)
    check_built(again.to("cpu"), dense)
    assert torch.equal(torch.as_tensor(again.indices).cpu(), torch.as_tensor(mask.indices))
    seen = create_mask(flex.mask_mod, batches, heads, q_len, kv_len, device=device)
    np.testing.assert_array_equal(seen.cpu().numpy(), dense)


@pytest.mark.parametrize("name", ["causal", "window", "documents", "everything", "nothing"])
def test_from_flex_and_to_flex_give_the_same_lists(name):
    flex = create_block_mask(MASK_MODS[name], 2, 3, 150, 150, device="cpu", BLOCK_SIZE=(32, 16))
    again = BlockMask.from_flex(flex).to_flex()
    assert torch.equal(again.to_dense(), flex.to_dense())
    assert torch.equal(again.kv_num_blocks, flex.kv_num_blocks)
    assert torch.equal(again.full_kv_num_blocks, flex.full_kv_num_blocks)


def test_flex_attention_takes_it(rng):
    from torch.nn.attention.flex_attention import flex_attention

    mask, _ = random_mask(rng, 1, 2, 128, 128, (32, 32))
    causal = BlockMask.causal(128, 128, q_block=32, kv_block=32)  # so that no query sees nothing
    mask = mask | causal
    q, k, v = (torch.from_numpy(rng.standard_normal((1, 2, 128, 16), dtype=np.float32)) for _ in range(3))
    from sparsek import attention

    with pytest.warns(UserWarning, match="flex_attention called without torch.compile"):
        wanted = flex_attention(q, k, v, block_mask=mask.to_flex())
    torch.testing.assert_close(attention(q, k, v, mask=mask, layout="bhsd"), wanted, rtol=1e-4, atol=1e-5)
