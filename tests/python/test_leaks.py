"""Nothing leaks, whether calls succeed or fail."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_errors_keep_no_reference_to_the_arguments():
    q = np.zeros((1, 64, 2, 32), np.float32)
    bad = np.zeros((1, 64, 3, 32), np.float32)
    mask = BlockMask.causal(64, 64, q_block=16, kv_block=16)
    counts = [sys.getrefcount(x) for x in (q, bad)]
    for _ in range(50):
        with pytest.raises(ValueError, match="multiple of k's 3"):
            attention(q, bad, bad, mask=mask)
        with pytest.raises(NotImplementedError):
            attention(q, q, q, backend="wmma")
        attention(q, q, q, mask=mask)
    gc.collect()
    assert [sys.getrefcount(x) for x in (q, bad)] == counts


def test_masks_and_matrices_die_with_their_last_reference():
    mask = BlockMask.causal(64, 64, q_block=16, kv_block=16)
    q = np.zeros((1, 64, 2, 32), np.float32)
    attention(q, q, q, mask=mask)
    matrix = BSRMatrix.from_dense(np.eye(32, dtype=np.float32), (8, 8))
    bsr_gemm(matrix.T, np.ones((32, 4), np.float32))
    alive = [weakref.ref(mask), weakref.ref(matrix)]
    del mask, matrix
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow():
    q = np.ones((1, 512, 4, 64), np.float32)
    out_of_range = np.full((1, 1, 8, 4), 99, np.int32)

    def work():
        attention(q, q, q, causal=True, return_lse=True, return_weights=True)
        with pytest.raises(ValueError, match="99"):
            BlockMask.from_indices(out_of_range, None, q_len=512, kv_len=512, q_block=64, kv_block=64)

    for _ in range(10):
        work()
    before = resident_bytes()
    for _ in range(40):
        work()
    # A call allocates 5 MB; what the allocator keeps for itself does not grow with their number.
    assert resident_bytes() - before < 40e6
