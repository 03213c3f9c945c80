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


HOLD = """
extern "C" __global__ void hold(long long clocks) {
  extern __shared__ char memory[];
  memory[threadIdx.x] = 0;
  const long long begin = clock64();
  while (clock64() - begin < clocks) {}
}
"""


@pytest.mark.parametrize(("head_dim", "length"), [(64, 139264), (128, 69632)])  # K and V of a head: 34 MB
def test_rounds_that_keep_together_beside_a_kernel_that_holds_sms(head_dim, length, rng):
    """Some CTAs begin when the others have waited for them in vain."""
    cupy = pytest.importorskip("cupy")
    heads, block, most = 2, 128, 16
    indices = np.sort(lists(rng, np.empty((1, heads, length // block)), length // block, most), axis=-1)
    shape = {"q_len": length, "kv_len": length, "q_block": block, "kv_block": block}
    mask = BlockMask.from_indices(torch.from_numpy(indices).cuda(), None, **shape)
    q, k, v = (normal(rng, 1, length, heads, head_dim) for _ in range(3))
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
