"""The rest of BlockMask: moving, drawing, describing, other libraries, GPUs."""

from __future__ import annotations

import builtins
import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mask_helpers import SIZES, check_built, document_of_token, random_dense, windowed
from torch.nn.attention.flex_attention import create_block_mask, create_mask

import sparsek
from sparsek import BlockMask, attention

# The rest


def test_repr():
    assert repr(BlockMask.causal(4096, 4096)) == (
        "BlockMask(q 4096 x kv 4096, blocks 128x128, heads 1, 528 of 1024 blocks (51.6%), 32 partial)"
    )
    mask = BlockMask.from_dense(np.ones((2, 3, 8, 8), bool), q_block=8, kv_block=4)
    assert repr(mask) == "BlockMask(q 8 x kv 8, blocks 8x4, batches 2, heads 3, 12 of 12 blocks (100.0%), 0 partial)"


def test_to_moves_every_array():
    mask = BlockMask.causal(40, 40, q_block=16, kv_block=16)
    moved = mask.to(torch.empty(0))
    for name in ("indices", "offsets", "bitmap_indices", "bitmaps"):
        array = getattr(moved, name)
        assert isinstance(array, torch.Tensor)
        np.testing.assert_array_equal(array.numpy(), getattr(mask, name))
    assert moved.counts is None
    check_built(moved, windowed(40, 40, None, 0))
    assert moved.to("cpu").indices is moved.indices
    assert moved.to(torch.device("cpu")).device == "cpu"
    assert isinstance(moved.to(np.empty(0)).indices, np.ndarray)
    assert mask.to("cpu").indices is mask.indices
    with pytest.raises(ValueError, match="cannot live on 'cuda:0', pass an array that does"):
        mask.to("cuda:0")


def test_view_passes_the_arrays_once(monkeypatch):
    calls = []
    core = SimpleNamespace(BlockMaskView=lambda **arguments: calls.append(arguments) or object())
    monkeypatch.setattr(sparsek, "_core", core, raising=False)
    mask = BlockMask.causal(40, 50, q_block=16, kv_block=8)
    assert mask._view() is mask._view()
    (arguments,) = calls
    assert arguments["indices"] is mask.indices
    assert arguments["offsets"] is mask.offsets
    assert arguments["bitmaps"] is mask.bitmaps
    assert arguments["bitmap_indices"] is mask.bitmap_indices
    assert arguments["counts"] is None
    sizes = ("q_len", "kv_len", "q_block", "kv_block", "num_batches", "num_heads")
    assert [arguments[name] for name in sizes] == [40, 50, 16, 8, 1, 1]


def test_view_follows_the_arrays(rng):
    q, k, v = (torch.from_numpy(rng.standard_normal((1, 32, 1, 16), dtype=np.float32)) for _ in range(3))
    indices = torch.zeros(1, 1, 2, 1, dtype=torch.int32)
    mask = BlockMask.from_indices(indices, q_len=32, kv_len=32, q_block=16, kv_block=16)
    first = attention(q, k[:, :16], v[:, :16])
    assert torch.allclose(attention(q, k, v, mask=mask), first)
    indices.fill_(1)
    second = attention(q, k[:, 16:], v[:, 16:])
    assert torch.allclose(attention(q, k, v, mask=mask), second)
    mask._arrays = dataclasses.replace(mask._arrays, indices=torch.zeros_like(indices))
    assert torch.allclose(attention(q, k, v, mask=mask), first)
    with pytest.raises(AttributeError):
        mask.indices = indices  # would leave the rest of the mask as it was


def test_text():
    mask = BlockMask.causal(64, 64, q_block=16, kv_block=16)
    assert mask.to_text().splitlines() == ["▒▒······", "██▒▒····", "████▒▒··", "██████▒▒"]
    half = mask.to_text(width=4).splitlines()
    assert half == ["▒▒··", "██▒▒"]
    assert BlockMask.causal(0, 0).to_text() == ""
    long = BlockMask.sliding_window(100_000, 1000, (10, 0)).to_text(width=20).splitlines()
    assert len(long) <= 20


def test_text_of_a_head():
    dense = np.zeros((2, 3, 16, 16), bool)
    dense[1, 2] = True
    mask = BlockMask.from_dense(dense, q_block=16, kv_block=16)
    assert mask.to_text(batch=1, head=2) == "██"
    assert mask.to_text(batch=0, head=2) == "··"
    with pytest.raises(ValueError, match="batch: expected 0 to 1, got 2"):
        mask.to_text(batch=2)
    with pytest.raises(ValueError, match="head: expected 0 to 2, got -1"):
        mask.to_text(head=-1)
    with pytest.raises(ValueError, match="width: expected at least 2 characters, got 1"):
        mask.to_text(width=1)


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mask = BlockMask.causal(64, 128, q_block=16, kv_block=16)
    ax = mask.plot()
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image, mask.to_dense()[0, 0].reshape(4, 16, 8, 16).mean((1, 3)))
    assert mask.plot(ax) is ax
    with pytest.raises(ValueError, match="head: expected 0 to 0, got 1"):
        mask.plot(head=1)
    plt.close("all")


def test_plot_names_the_extra(monkeypatch):
    imported = builtins.__import__

    def without_matplotlib(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=re.escape("pip install 'sparsek[plot]'")):
        BlockMask.causal(8, 8).plot()


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    dense = np.random.default_rng(0).random((2, 40, 50)) < 0.2
    dense[0, :16] = False
    mask = BlockMask.from_dense(jax.numpy.asarray(dense), q_block=16, kv_block=8)
    assert isinstance(mask.indices, jax.Array)
    check_built(mask, dense)
    check_built(mask.to(np.empty(0)).to(mask.indices), dense)
    check_built(mask & mask.to(torch.empty(0)), dense)
    built = BlockMask.from_mask_mod(
        lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, q_len=40, kv_len=40, q_block=16, kv_block=8, like=mask.indices
    )
    check_built(built, windowed(40, 40, None, 0))
    offsets, indices = jax.numpy.asarray([0, 1, 3]), jax.numpy.asarray([2, 0, 1], "uint8")
    mask = BlockMask.from_csr(offsets, indices, **SIZES)
    assert (mask.offsets.dtype, mask.indices.dtype) == (np.int64, np.int32)
    bitmaps = jax.numpy.full((1, 16, 1), 0xFFFF, "uint32")
    mask = BlockMask.from_indices(
        mask.indices.reshape(1, 3)[:, :2].repeat(2, 0),
        bitmaps=bitmaps,
        bitmap_indices=jax.numpy.zeros((2, 2), int),
        **SIZES,
    )
    assert mask.num_pairs == 4 * 256


@pytest.mark.gpu
def test_lists_on_a_gpu():
    rng = np.random.default_rng(0)
    dense = random_dense(rng, (2, 3, 150, 200), 32, 64)
    mask = BlockMask.from_dense(torch.as_tensor(dense, device="cuda"), q_block=32, kv_block=64)
    assert mask.device == "cuda:0"
    assert repr(mask).endswith("cuda:0)")
    check_built(mask.to("cpu"), dense)
    assert mask.to("cpu").to(mask.indices).device == "cuda:0"
    causal = BlockMask.causal(150, 200, q_block=32, kv_block=64)
    assert (mask & causal).device == "cuda:0"
    check_built((mask & causal).to("cpu"), dense & windowed(150, 200, None, 0))

    table = torch.as_tensor(dense, device="cuda")
    built = BlockMask.from_mask_mod(
        lambda b, h, q_idx, kv_idx: table[b, h, q_idx, kv_idx],
        batch=2,
        heads=3,
        q_len=150,
        kv_len=200,
        q_block=32,
        kv_block=64,
        like=table,
    )
    check_built(built.to("cpu"), dense)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_lists_chosen_on_a_gpu_do_not_synchronise():
    indices = torch.tensor([[0, 1], [2, 0]], dtype=torch.int32, device="cuda")
    counts = torch.tensor([1, 2], dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        mask = BlockMask.from_indices(indices, counts, **SIZES, check=False)
        converted = BlockMask.from_indices(indices.long(), counts.long(), **SIZES, check=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mask.indices.data_ptr() == indices.data_ptr()
    assert mask.num_pairs == converted.num_pairs == 3 * 256
    counts[0] = 2
    assert mask.num_pairs == 4 * 256


@pytest.mark.gpu
def test_from_flex_on_a_gpu():
    documents = document_of_token.cuda()

    def mask_mod(b, h, q_idx, kv_idx):
        return (documents[q_idx] == documents[kv_idx]) & (q_idx >= kv_idx)

    flex = create_block_mask(mask_mod, None, None, 150, 150, device="cuda", BLOCK_SIZE=(32, 32))
    mask = BlockMask.from_flex(flex)
    assert mask.device == "cuda:0"
    check_built(mask.to("cpu"), create_mask(mask_mod, 1, 1, 150, 150, device="cuda").cpu().numpy())
