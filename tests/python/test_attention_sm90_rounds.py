"""Several q tiles for each CTA of the fused kernels: rounds of them, and what one leaves for the next."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from test_attention_sm90 import check, lists, normal, on_each, spot_check

from sparsek import BlockMask, attention

pytestmark = pytest.mark.gpu


@on_each
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("q_block", [64, 128])
@pytest.mark.parametrize("equal", [False, True])
def test_long_lists_of_long_contexts(equal, q_block, head_dim, backend, rng):
    """Several rounds of q tiles, every second of which visits its lists from the end."""
    q_len, kv_len, heads, kv_block, most = 24576, 131200, 2, 64, 70
    rows = q_len // q_block
    counts = np.full((1, heads, rows), most, np.int32) if equal else rng.integers(0, most + 1, (1, heads, rows))
    counts = np.ascontiguousarray(counts, np.int32)
    indices = np.sort(lists(rng, counts, kv_len // kv_block, most), axis=-1)
    q = normal(rng, 1, q_len, heads, head_dim)
    k, v = (normal(rng, 1, kv_len, heads, head_dim) for _ in range(2))
    shape = {"q_len": q_len, "kv_len": kv_len, "q_block": q_block, "kv_block": kv_block}
    mask = BlockMask.from_indices(torch.from_numpy(indices).cuda(), torch.from_numpy(counts).cuda(), **shape)
    out = attention(q, k, v, mask=mask, backend=backend)

    def listed(head, row):
        blocks = torch.from_numpy(indices[0, head, row // q_block, : counts[0, head, row // q_block]]).cuda().long()
        return (blocks[:, None] * kv_block + torch.arange(kv_block, device="cuda")).flatten()

    places = [(0, head, row) for head in range(heads) for row in range(3, q_len, 397)]
    spot_check(q, k, v, out, [place for place in places if counts[0, place[1], place[2] // q_block]], listed)
    empty = torch.from_numpy(counts[0] == 0).cuda().repeat_interleave(q_block, dim=1)  # (heads, q_len)
    assert (out[0].transpose(0, 1)[empty] == 0).all()
    assert torch.equal(out, attention(q, k, v, mask=mask, backend=backend))


@pytest.mark.parametrize("head_dim", [64, 96, 128])
def test_tiles_without_keys_between_others(head_dim, rng):
    """Several q tiles for each CTA, some of them empty, whose O goes through shared memory too."""
    q_len, kv_len, heads = 3000, 1000, 20
    q = normal(rng, 1, q_len, heads, head_dim)
    k, v = (normal(rng, 1, kv_len, heads, head_dim) for _ in range(2))
    out, lse = attention(q, k, v, causal=True, return_lse=True, backend="sm90")
    check(q, k, v, reference.allowed_pairs(q_len, kv_len, causal=True, device="cuda"), out, lse)
    assert (out[:, : q_len - kv_len] == 0).all()


# K and V of a head: more than 32 MB, so that the CTAs of dense tiles keep in step.
IN_STEP = [
    (64, 64, 131200),
    (96, 96, 87552),
    (128, 128, 65637),
    (192, 128, 52500),
    (192, 192, 43712),
    (256, 256, 32800),
]


@pytest.mark.parametrize(("head_dim", "value_dim", "kv_len"), IN_STEP)
@pytest.mark.parametrize(("q_len", "heads"), [(7001, 6), (1000, 3), (4352, 16)])
def test_dense_tiles_that_keep_in_step(q_len, heads, head_dim, value_dim, kv_len, rng):
    """Fewer tiles than CTAs, and rounds of which the last one is not full."""
    kv_heads = 2 if heads % 2 == 0 else 1
    q = normal(rng, 1, q_len, heads, head_dim)
    k, v = normal(rng, 1, kv_len, kv_heads, head_dim), normal(rng, 1, kv_len, kv_heads, value_dim)
    out = attention(q, k, v, backend="sm90")
    places = [(0, head, row) for head in range(heads) for row in (0, 63, 191, q_len // 2, q_len - 1)]
    spot_check(q, k, v, out, places, lambda head, row: torch.arange(kv_len, device="cuda"))
    assert torch.isfinite(out).all()
    graph = torch.cuda.CUDAGraph()
    again = torch.empty_like(out)
    with torch.cuda.graph(graph):
        attention(q, k, v, out=again, backend="sm90")
    for _ in range(2):  # counts begin at zero each time
        again.fill_(float("nan"))
        graph.replay()
        assert torch.equal(again, out)


HOLD = """
extern "C" __global__ void hold(long long clocks) {
  extern __shared__ char memory[];
  memory[threadIdx.x] = 0;
  const long long begin = clock64();
  while (clock64() - begin < clocks) {}
}
"""


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("head_dim", "length"), [(64, 139264), (128, 69632)])  # K and V of a head: 34 MB
def test_tiles_that_keep_together_beside_a_kernel_that_holds_sms(head_dim, length, listed, rng):
    """Some CTAs begin when the others have waited for them in vain."""
    cupy = pytest.importorskip("cupy")
    heads, block, most = 2, 128, 16
    mask = None
    if listed:
        indices = np.sort(lists(rng, np.empty((1, heads, length // block)), length // block, most), axis=-1)
        shape = {"q_len": length, "kv_len": length, "q_block": block, "kv_block": block}
        mask = BlockMask.from_indices(torch.from_numpy(indices).cuda(), None, **shape)
    k, v = (normal(rng, 1, length, heads, head_dim) for _ in range(2))
    q = normal(rng, 1, length if listed else 16384, heads, head_dim)
    alone = attention(q, k, v, mask=mask, backend="sm90")
    hold = cupy.RawKernel(HOLD, "hold")
    hold.max_dynamic_shared_size_bytes = 128 * 1024
    stream = cupy.cuda.Stream(non_blocking=True)
    torch.cuda.synchronize()
    with stream:
        hold((40,), (32,), (np.int64(20_000_000),), shared_mem=128 * 1024)
    beside = attention(q, k, v, mask=mask, backend="sm90")
    assert torch.equal(beside, alone)
    stream.synchronize()
