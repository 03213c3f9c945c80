"""DLPack's C exchange functions: used where a library has them, never needed, and nothing leaks on that way."""

from __future__ import annotations

import ctypes
import gc
import sys

import numpy as np
import pytest
import torch

from sparsek import BlockMask, _core, attention, frameworks

NAME = b"dlpack_exchange_api"


class Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("to_managed", ctypes.c_void_p),
        ("from_managed", ctypes.c_void_p),
        ("to_tensor", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


def exchange_of(table: Table) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = make(ctypes.addressof(table), NAME, None)
    return _core.exchange_of(type("Array", (), {"__dlpack_c_exchange_api__": capsule}), {})


def tensors(*shapes):
    return [torch.randn(shape, dtype=torch.float16) for shape in shapes]


def test_tables_that_are_understood():
    table = Table(major=1, minor=3, to_tensor=1, current_stream=1)
    assert exchange_of(table) is not None
    newer = Table(major=2, minor=0)
    assert exchange_of(newer) is None
    newer.previous = ctypes.addressof(table)
    assert exchange_of(newer) is not None
    table.to_tensor = None  # optional in DLPack
    assert exchange_of(newer) is None
    assert _core.exchange_of(np.ndarray, {}) is None
    assert _core.exchange_of(type("Array", (), {"__dlpack_c_exchange_api__": 5}), {}) is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_same_results_without_it(device, layout, monkeypatch):
    q, k, v = (x.to(device) for x in tensors((2, 40, 4, 16), (2, 48, 2, 16), (2, 48, 2, 24)))
    if layout == "bhsd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = BlockMask.sliding_window(40, 48, (20, 5), q_block=16, kv_block=16).to(q)

    def results():
        return attention(q, k, v, mask=mask, layout=layout, return_lse=True, return_weights=True)

    library = frameworks.of(q)
    fast = results()
    monkeypatch.setattr(library, "exchange", None)
    for got, want in zip(fast, results(), strict=True):
        assert got.device == q.device
        assert torch.equal(got, want)


def test_results_are_contiguous_in_the_callers_layout():
    q, k, v = (x.transpose(1, 2) for x in tensors((2, 40, 4, 16), (2, 48, 2, 16), (2, 48, 2, 16)))
    out = attention(q, k, v, layout="bhsd")
    assert out.shape == q.shape
    assert out.is_contiguous()


def test_arrays_of_two_libraries():
    q, k, v = tensors((2, 40, 4, 16), (2, 48, 2, 16), (2, 48, 2, 16))
    want = attention(q, k, v)
    assert torch.equal(attention(q, k.numpy(), v), want)
    assert np.array_equal(attention(q.numpy(), k, v), want.numpy())
    with torch.no_grad():
        assert torch.equal(attention(torch.nn.Parameter(q), k, torch.nn.Parameter(v)), want)


def test_arrays_without_a_description():
    q, k, v = tensors((2, 40, 4, 16), (2, 48, 2, 16), (2, 48, 2, 16))
    with pytest.raises(TypeError, match=r"k: expected an array that DLPack can describe, got torch.Tensor"):
        attention(q, k.to_sparse(), v)
    with pytest.raises(TypeError, match=r"q: expected an array that DLPack can describe, got torch.Tensor"):
        attention(q.to("meta"), k, v)
    with pytest.raises(ValueError, match=r"v: expected 4 axes \(bhsd\), got shape \(5,\)"):
        attention(q, k, torch.zeros(5), layout="bhsd")
    assert attention(q, k, v).shape == q.shape


@pytest.mark.gpu
def test_the_workspace_is_torchs_memory_and_given_back():
    q = torch.randn(1, 64, 2, 64, dtype=torch.float16, device="cuda")
    out = torch.empty_like(q)

    def counts():
        stats = torch.cuda.memory_stats()
        return stats["allocation.all.allocated"], stats["allocation.all.freed"]

    allocated, freed = counts()
    for _ in range(3):
        attention(q, q, q, out=out, return_weights=True, backend="sm90")
    assert counts() == (allocated + 6, freed + 6)  # the weights are freed with their array


def test_no_reference_is_kept():
    q, k, v, bad = tensors((2, 40, 4, 16), (2, 48, 2, 16), (2, 48, 2, 16), (2, 48, 3, 16))
    out = torch.empty_like(q)
    arrays = (q, k, v, bad, out)
    counts = [sys.getrefcount(x) for x in arrays]
    for _ in range(20):
        attention(q, k, v, out=out, return_lse=True)
        with pytest.raises(ValueError, match="multiple of k's 3"):
            attention(q, bad, bad)
        with pytest.raises(TypeError, match="k: expected an array that DLPack"):
            attention(q, k.to_sparse(), v)
    gc.collect()
    assert [sys.getrefcount(x) for x in arrays] == counts
