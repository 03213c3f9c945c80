"""CPU attention beside PyTorch's, on as many threads: `python benchmarks/attention_cpu.py`.

Every output is checked against PyTorch's before its time counts.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

import torch
import torch.nn.functional as F
from results import record, save, show

import sparsek
from sparsek import BlockMask, attention


def milliseconds(call, repeats: int = 9) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def run_case(name: str, length: int, mask: BlockMask | None, threads: int) -> list[dict]:
    heads, head_dim = 8, 64
    q, k, v = (torch.randn(1, heads, length, head_dim) for _ in range(3))
    dense = None if mask is None else torch.from_numpy(mask.to_dense())
    pairs = length * length if mask is None else mask.num_pairs / (mask.num_batches * mask.num_heads)
    calls = {
        "sparsek/cpu": lambda: attention(q, k, v, mask=mask, layout="bhsd", backend="cpu"),
        "torch/sdpa": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
    }
    if mask is not None:
        calls["torch/sdpa-unmasked"] = lambda: F.scaled_dot_product_attention(q, k, v)
    error = (calls["sparsek/cpu"]() - calls["torch/sdpa"]()).abs().max().item()
    assert error < 1e-4, f"{name}: differs from PyTorch by {error}"
    params = {
        "batch": 1,
        "heads": heads,
        "head_dim": head_dim,
        "length": length,
        "threads": threads,
        "dtype": "float32",
    }
    machine = platform.processor() or platform.machine()
    rows = []
    for impl, call in calls.items():
        ms = milliseconds(call)
        work = 4 * heads * head_dim * (length * length if impl == "torch/sdpa-unmasked" else pairs)
        rows.append(record(name, impl, "attention", params, ms, work / ms / 1e9, f"none ({machine})"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=sparsek.num_threads())
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/cpu.jsonl")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    sparsek.set_num_threads(options.threads)
    suffix = f"t{options.threads}"
    blocks = torch.rand(1, 8, 64, 64) < 0.1
    blocks[..., 0] = True  # every row sees something: PyTorch would give NaN
    sparse = BlockMask.from_dense(
        blocks.repeat_interleave(64, 2).repeat_interleave(64, 3).numpy(), q_block=64, kv_block=64
    )
    rows = run_case(f"cpu/dense/d64/s2048/{suffix}", 2048, None, options.threads)
    rows += run_case(f"cpu/random/d64/s4096/b64/density0.1/{suffix}", 4096, sparse, options.threads)
    show(rows)
    if options.save:
        print(f"wrote {save('cpu', rows)}")


if __name__ == "__main__":
    main()
