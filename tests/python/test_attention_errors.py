"""Every wrong argument is named, with what was expected and what was given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import sparsek
from sparsek import BlockMask, attention


def arrays(**changes):
    shapes = {"q": (2, 8, 4, 16), "k": (2, 10, 2, 16), "v": (2, 10, 2, 16)} | changes
    return [np.zeros(shape, np.float32) for shape in shapes.values()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": (2, 8, 4)}, r"q: expected 4 axes.*\(2, 8, 4\)"),
        ({"k": (3, 10, 2, 16)}, r"k: expected batch 2 \(that of q\), got 3"),
        ({"v": (2, 11, 2, 16)}, r"v: expected length 10 \(that of k\), got 11"),
        ({"v": (2, 10, 1, 16)}, r"v: expected number of heads 2 \(that of k\), got 1"),
        ({"k": (2, 10, 2, 8)}, r"k: expected head_dim 16 \(that of q\), got 8"),
        ({"q": (2, 8, 3, 16)}, r"q: expected a number of heads that is a multiple of k's 2, got 3"),
        ({"q": (2, 8, 4, 0), "k": (2, 10, 2, 0)}, r"q: expected a head_dim of at least 1, got 0"),
        ({"v": (2, 10, 2, 0)}, r"v: expected a value dim of at least 1, got 0"),
    ],
)
def test_shapes(changes, message):
    with pytest.raises(ValueError, match=message):
        attention(*arrays(**changes))


def test_head_dim_too_large_lists_every_backends_reason():
    q, k, v = arrays(q=(1, 4, 1, 320), k=(1, 4, 1, 320), v=(1, 4, 1, 320))
    with pytest.raises(NotImplementedError, match=r"(?s)no backend takes.*head_dim=320.*cpu: .*256, got 320") as error:
        attention(q, k, v)
    for row in sparsek.backends():
        if row.operation == "attention":
            assert f"{row.name}:" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"layout": "sbhd"}, ValueError, r'layout: expected "bshd" or "bhsd", got \'sbhd\''),
        ({"window": 3}, TypeError, r"window: expected \(left, right\) or None, got 3"),
        ({"window": (1, 2, 3)}, TypeError, r"window: expected \(left, right\)"),
        ({"window": (-1, 0)}, ValueError, r"window: expected left and right >= 0, got \(-1, 0\)"),
        ({"window": (0, 1 << 63)}, ValueError, r"window: expected left and right below 2\^63, got \(0, 9223"),
        ({"scale": "half"}, TypeError, r"scale: expected a number, got 'half'"),
        ({"backend": 3}, TypeError, r"backend: expected a name .* or None, got 3"),
        ({"window": (1.5, 0)}, TypeError, r"window: expected integers or None"),
        ({"scale": float("nan")}, ValueError, r"scale: expected a finite number, got nan"),
        ({"backend": "fast"}, ValueError, r'backend: expected one of sm90, wmma, cpu, got "fast"'),
        ({"mask": np.ones((8, 10), bool)}, TypeError, r"mask: expected a sparsek.BlockMask.*ndarray"),
    ],
)
def test_options(arguments, kind, message):
    with pytest.raises(kind, match=message):
        attention(*arrays(), **arguments)


def test_out_with_one_place_for_several_elements():
    q, k, v = arrays()
    one_head = torch.zeros(2, 8, 1, 16).expand(2, 8, 4, 16)
    with pytest.raises(ValueError, match=r"out: expected memory for each element, got stride 0 on axis 2 of shape"):
        attention(*(torch.from_numpy(x) for x in (q, k, v)), out=one_head)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_out_in_the_memory_of_an_input(name):
    arrays = dict(zip("qkv", (np.ones((1, 8, 4, 16), np.float32) for _ in range(3)), strict=True))
    with pytest.raises(ValueError, match=rf"out: expected memory that is not {name}'s, got address 0x"):
        attention(**arrays, out=arrays[name])


def test_out_that_meets_an_input():
    memory = np.ones((1, 12, 4, 16), np.float32)
    q, k = (np.ones((1, 8, 4, 16), np.float32) for _ in range(2))
    with pytest.raises(ValueError, match=r"out: expected memory that is not v's"):
        attention(q, k, memory[:, :8], out=memory[:, 4:])


def test_out_beside_the_inputs():
    tokens = np.ones((2, 8, 4, 4, 16), np.float32)
    tokens[:, :, 3] = 0
    attention(tokens[:, :, 0], tokens[:, :, 1], tokens[:, :, 2], out=tokens[:, :, 3])
    assert np.allclose(tokens, 1)


def test_no_array():
    q, k, v = arrays()
    with pytest.raises(TypeError, match=r"q: expected an array .*, got list"):
        attention(q.tolist(), k, v)
    with pytest.raises(TypeError, match=r"v: expected an array .*, got NoneType"):
        attention(q, k, None)


def test_dtypes():
    q, k, v = arrays()
    with pytest.raises(TypeError, match=r"q: expected dtype float16, bfloat16 or float32, got float64"):
        attention(q.astype(np.float64), k, v)
    with pytest.raises(TypeError, match=r"q: expected dtype .*, got int32"):
        attention(q.astype(np.int32), k, v)
    with pytest.raises(TypeError, match=r"k: expected the dtype of q \(float32\), got float16"):
        attention(q, k.astype(np.float16), v)


def test_last_axis_must_be_contiguous():
    q, _, v = arrays()
    with pytest.raises(ValueError, match=r"k: expected a contiguous last axis \(stride 1\), got stride 2"):
        attention(q, np.zeros((2, 10, 2, 32), np.float32)[..., ::2], v)


def test_out():
    q, k, v = arrays()
    with pytest.raises(ValueError, match=r"out: expected length 8 \(that of q\), got 9"):
        attention(q, k, v, out=np.zeros((2, 9, 4, 16), np.float32))
    with pytest.raises(TypeError, match=r"out: expected the dtype of q \(float32\), got float16"):
        attention(q, k, v, out=np.zeros((2, 8, 4, 16), np.float16))
    frozen = np.zeros((2, 8, 4, 16), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=r"out: expected a writable array"):
        attention(q, k, v, out=frozen)


def test_mask_for_other_shapes():
    q, k, v = arrays()
    with pytest.raises(
        ValueError, match=r"mask: expected one made for q_len 8 and kv_len 10, got q_len 8 and kv_len 12"
    ):
        attention(q, k, v, mask=BlockMask.causal(8, 12, q_block=4, kv_block=4))
    heads = BlockMask.from_dense(np.ones((3, 8, 10), bool), q_block=4, kv_block=4)
    with pytest.raises(ValueError, match=r"mask: expected 1 head, the 2 of k or the 4 of q, got 3"):
        attention(q, k, v, mask=heads)
    batches = BlockMask.from_dense(np.ones((3, 1, 8, 10), bool), q_block=4, kv_block=4)
    with pytest.raises(ValueError, match=r"mask: expected 1 batch or the 2 of q, got 3"):
        attention(q, k, v, mask=batches)


def test_gradients_are_refused_not_lost():
    q, k, v = (torch.from_numpy(x) for x in arrays())
    with pytest.raises(NotImplementedError, match=r"k: .*needs no gradient.*requires_grad=True"):
        attention(q, k.requires_grad_(), v)
    with torch.no_grad():
        assert attention(q, k, v).shape == q.shape


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # by torch
def test_tangents_are_refused_not_lost():
    q, k, v = (torch.from_numpy(x) for x in arrays())
    with forward_ad.dual_level():
        assert attention(q, k, v).shape == q.shape
        with pytest.raises(NotImplementedError, match=r"v: .*without a tangent"):
            attention(q, k, forward_ad.make_dual(v, v))


def test_gpu_backend_declines_cpu_arrays_with_a_reason():
    with pytest.raises(NotImplementedError, match=r"wmma: "):
        attention(*arrays(), backend="wmma")


@pytest.mark.gpu
def test_devices_differ():
    q, k, v = (torch.from_numpy(x).half() for x in arrays())
    with pytest.raises(ValueError, match=r"k: expected the device of q \(cuda:0\), got cpu"):
        attention(q.cuda(), k, v.cuda())
    mask = BlockMask.causal(8, 10, q_block=4, kv_block=4)
    with pytest.raises(ValueError, match=r"mask: expected the device of q \(cuda:0\), got cpu"):
        attention(q.cuda(), k.cuda(), v.cuda(), mask=mask)


@pytest.mark.gpu
def test_gpu_backend_gives_its_reason():
    def half(*shape):
        return torch.zeros(*shape, dtype=torch.float16, device="cuda")

    q = half(1, 8, 1, 64)
    with pytest.raises(NotImplementedError, match=r"wmma: dtype is float32, expected float16 or bfloat16"):
        attention(q.float(), q.float(), q.float())
    with pytest.raises(NotImplementedError, match=r"wmma: head_dim is 264, expected at most 256"):
        attention(half(1, 8, 1, 264), half(1, 8, 1, 264), half(1, 8, 1, 64), backend="wmma")
    odd = half(1, 8, 1, 68)[..., 4:]
    with pytest.raises(NotImplementedError, match=r"sm90: k has rows at multiples of 8 bytes, expected 16"):
        attention(q, odd, q, backend="sm90")
    assert torch.isfinite(attention(q, odd, q)).all()  # wmma takes it
    assert torch.isfinite(attention(q, q, q)).all()  # nothing was left broken
