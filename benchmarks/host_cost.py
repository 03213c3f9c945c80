"""Host time of one call on torch tensors: what the caller's thread pays, whatever the GPU then does.

python benchmarks/host_cost.py prints microseconds for each attention backend that runs here, and for torch.empty_like,
which every call contains; then what sparsek.torch costs beside the raw calls: eager, through the operator where a
gradient is wanted (forward alone), and compiled.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import sparsek
import sparsek.torch
from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm

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


def attention_cases(device: str, backend: str) -> dict[str, Callable[[], object]]:
    q, k, v = (torch.randn(1, 1, 1, 64, device=device).half() for _ in range(3))
    mask = BlockMask.causal(1, 1).to(q)
    call = partial(attention, q, k, v, backend=backend)
    through_torch = partial(sparsek.torch.attention, q, k, v, backend=backend)
    with_gradient = partial(sparsek.torch.attention, q.detach().requires_grad_(), k, v, backend=backend)
    # One function for each: a function compiled again for other arguments checks both sets at every call.
    compiled, compiled_mask = (
        torch.compile(lambda q, k, v, mask=mask: sparsek.torch.attention(q, k, v, mask=mask, backend=backend))
        for mask in (None, mask)
    )
    return {
        "empty_like": partial(torch.empty_like, q),
        "attention": call,
        "bhsd": partial(call, layout="bhsd"),
        "mask": partial(call, mask=mask),
        "lse": partial(call, return_lse=True),
        "mask, lse": partial(call, mask=mask, return_lse=True),
        "torch": through_torch,
        "torch, mask": partial(through_torch, mask=mask),
        "torch, lse": partial(through_torch, return_lse=True),
        "torch, grad": with_gradient,
        "torch, grad, mask": partial(with_gradient, mask=mask),
        "compiled": partial(compiled, q, k, v),
        "compiled, mask": partial(compiled_mask, q, k, v),
    }


def gemm_cases(device: str, backend: str) -> dict[str, Callable[[], object]]:
    weight = BSRMatrix.from_dense(torch.eye(64, device=device).half(), (64, 64))
    x = torch.randn(64, 64, device=device).half()
    return {
        "bsr_gemm": partial(bsr_gemm, weight, x, backend=backend),
        "torch": partial(sparsek.torch.bsr_gemm, weight, x, backend=backend),
        "torch, grad": partial(sparsek.torch.bsr_gemm, weight, x.detach().requires_grad_(), backend=backend),
    }


def main() -> None:
    for row in sparsek.backends():
        if not row.available:
            continue
        device = "cpu" if row.name == "cpu" else "cuda"
        synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        cases = (attention_cases if row.operation == "attention" else gemm_cases)(device, row.name)
        for name, run in cases.items():
            print(f"{row.operation:9} {row.name:14} {name:18} {host_us(run, synchronize):7.2f} us", flush=True)


if __name__ == "__main__":
    main()
