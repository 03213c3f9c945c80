"""One small attention on a GPU, as CUDA-graph replays: `python benchmarks/attention_small.py`.

B=1 H=16 S=1024 D=64, microseconds for each head: a graph of one call, and one of twenty (what a model's layers would
see), beside PyTorch's backends. Each output is checked against sparsek's before its time counts.
"""

from __future__ import annotations

import argparse
import statistics

import torch
import torch.nn.functional as F
from results import record, save, show
from torch.nn.attention import SDPBackend, sdpa_kernel

import sparsek
from sparsek import attention

HEADS, LENGTH, HEAD_DIM = 16, 1024, 64


def replay_microseconds(call, calls_in_graph: int) -> float:
    """Median over 50 replays, for one call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls_in_graph):
            call()
    times = []
    for _ in range(55):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / calls_in_graph)
    return statistics.median(times[5:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/h200.jsonl")
    options = parser.parse_args()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, LENGTH, HEADS, HEAD_DIM, device="cuda", dtype=torch.float16) for _ in range(3))
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    backends = [
        row.name for row in sparsek.backends() if row.operation == "attention" and row.available and row.name != "cpu"
    ]

    def sdpa(kind):
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(qt, kt, vt).transpose(1, 2)

    calls = {f"sparsek/{name}": lambda name=name: attention(q, k, v, backend=name) for name in backends}
    calls["torch/sdpa-fa2"] = lambda: sdpa(SDPBackend.FLASH_ATTENTION)
    calls["torch/sdpa-cudnn"] = lambda: sdpa(SDPBackend.CUDNN_ATTENTION)
    rows = []
    ours = attention(q, k, v)
    for impl, call in calls.items():
        error = (call() - ours).abs().max().item()
        assert error < 4e-3, f"{impl}: differs from sparsek by {error}"
        for count in (1, 20):
            us = replay_microseconds(call, count)
            params = {"batch": 1, "heads": HEADS, "length": LENGTH, "head_dim": HEAD_DIM, "dtype": "float16"}
            params |= {"calls_in_graph": count, "us_per_head": round(us / HEADS, 3)}
            work = 4 * HEADS * LENGTH * LENGTH * HEAD_DIM
            name = f"attn/small/d64/s1024/h16/graph{count}"
            rows.append(
                record(name, impl, "attention", params, us / 1e3, work / us / 1e6, torch.cuda.get_device_name())
            )
            print(f"{name:<36} {impl:<22} {us / HEADS:.3f} us a head", flush=True)
    show(rows)
    if options.save:
        print(f"wrote {save('h200', rows)}")


if __name__ == "__main__":
    main()
