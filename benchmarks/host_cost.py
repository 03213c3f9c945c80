"""Host time of one attention call on torch tensors: what the caller's thread pays, whatever the GPU then does.

python benchmarks/host_cost.py prints microseconds for each backend that runs here, and for torch.empty_like, which
every call contains.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import sparsek
from sparsek import BlockMask, attention

CALLS, CALLS_AHEAD = 2000, 100  # the GPU's queue must not fill: then a call waits for it


def host_us(call: Callable[[], object], synchronize: Callable[[], None]) -> float:
    times = []
    for _ in range(CALLS // CALLS_AHEAD + 2):
        synchronize()
        start = time.perf_counter()
        for _ in range(CALLS_AHEAD):
            call()
        times.append((time.perf_counter() - start) / CALLS_AHEAD)
    return statistics.median(times[2:]) * 1e6


def main() -> None:
    for row in sparsek.backends():
        if row.operation != "attention" or not row.available:
            continue
        device = "cpu" if row.name == "cpu" else "cuda"
        synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        q, k, v = (torch.randn(1, 1, 1, 64, device=device).half() for _ in range(3))
        mask = BlockMask.causal(1, 1).to(q)
        call = partial(attention, q, k, v, backend=row.name)
        cases = {
            "empty_like": partial(torch.empty_like, q),
            "attention": call,
            "bhsd": partial(call, layout="bhsd"),
            "mask": partial(call, mask=mask),
            "lse": partial(call, return_lse=True),
            "mask, lse": partial(call, mask=mask, return_lse=True),
        }
        for name, run in cases.items():
            print(f"{row.name:14} {name:12} {host_us(run, synchronize):7.2f} us", flush=True)


if __name__ == "__main__":
    main()
