"""Time and peak memory of BlockMask.from_mask_mod: sliding window and documents, 131072 x 131072 by default.

python benchmarks/mask_mod.py [--length 131072] [--window 4096] [--document 6000] [--device cuda]
prints one line for each mask_mod; on a GPU the memory is torch's peak above what was allocated before. With --flex
FlexAttention's create_block_mask is measured too (it evaluates all pairs, and without --compile holds them all).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from sparsek import BlockMask

RUNS = 10


def measured(build: Callable[[], object], device: str) -> tuple[float, float, float]:
    """Milliseconds of the first call, median milliseconds of the next ones, and peak bytes of one."""
    on_gpu = device.startswith("cuda")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    times, peak = [], float("nan")
    for _ in range(RUNS + 1):
        synchronize()
        if on_gpu:
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        made = build()
        synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        if on_gpu:
            peak = torch.cuda.max_memory_allocated() - before
        del made
    return times[0], statistics.median(times[1:]), peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=131072)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--document", type=int, default=6000, help="tokens in each document")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--flex", action="store_true", help="measure torch's create_block_mask too")
    parser.add_argument("--compile", action="store_true", help="let create_block_mask compile itself")
    options = parser.parse_args()
    length, device = options.length, options.device
    document = torch.arange(length, device=device) // options.document

    def window(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < options.window)

    def documents(b, h, q_idx, kv_idx):
        return document[q_idx] == document[kv_idx]

    def both(b, h, q_idx, kv_idx):
        return window(b, h, q_idx, kv_idx) & documents(b, h, q_idx, kv_idx)

    for mask_mod in (window, documents, both):
        builders = {
            "sparsek": lambda m=mask_mod: BlockMask.from_mask_mod(m, q_len=length, kv_len=length, device=device)
        }
        if options.flex:
            from torch.nn.attention.flex_attention import create_block_mask

            builders["flex"] = lambda m=mask_mod: create_block_mask(
                m, None, None, length, length, device=device, _compile=options.compile
            )
        for name, build in builders.items():
            first, later, peak = measured(build, device)
            print(
                f"{name:8} {mask_mod.__name__:10} {length} x {length} on {device}: first {first:8.1f} ms, "
                f"then {later:8.1f} ms, peak {peak / 1e6:8.1f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
