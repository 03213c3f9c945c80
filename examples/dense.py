"""Dense attention with sparsek in the place of torch's: the same numbers, and how long each takes.

python examples/dense.py [--length 1024] [--heads 16] [--kv-heads 4] [--head-dim 64] [--window LEFT]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NoReturn

import torch

import sparsek


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse() -> argparse.Namespace:
    parser = Parser(description="Dense attention with sparsek and with torch.")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=1024, help="tokens")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=4, help="k/v heads, a divisor of --heads")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--window", type=int, help="tokens before its own that a token sees; all by default")
    parser.add_argument("--device", help='"cpu" or "cuda"; by default a GPU that sparsek has a backend for')
    options = parser.parse_args()
    for name in ("batch", "length", "heads", "kv_heads", "head_dim"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1, got {getattr(options, name)}")
    if options.heads % options.kv_heads:
        parser.error(f"--kv-heads: expected a divisor of --heads {options.heads}, got {options.kv_heads}")
    if options.device not in (None, "cpu", "cuda"):
        parser.error(f'--device: expected "cpu" or "cuda", got {options.device!r}')
    return options


def seconds(function) -> float:
    """The shortest of three calls, after one that does not count."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def main() -> int:
    options = parse()
    gpu = any(row.operation == "attention" and row.available and row.name != "cpu" for row in sparsek.backends())
    device = options.device or ("cuda" if gpu and torch.cuda.is_available() else "cpu")
    dtype = torch.float16 if device == "cuda" else torch.float32
    shape = (options.batch, options.length, options.heads, options.head_dim)
    kv_shape = (options.batch, options.length, options.kv_heads, options.head_dim)
    q, k, v = (torch.randn(size, device=device, dtype=dtype) for size in (shape, kv_shape, kv_shape))

    window = None if options.window is None else (options.window, 0)
    allowed = torch.ones(options.length, options.length, dtype=torch.bool, device=device).tril()
    if options.window is not None:
        allowed = allowed.triu(-options.window)

    def with_torch(q, k, v):
        # torch wants (B, H, S, D) and, with a mask, as many heads of k and v as of q.
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(options.heads // options.kv_heads, dim=1) for x in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2)

    def with_sparsek(q, k, v):
        return sparsek.attention(q, k, v, causal=True, window=window)

    exact = with_torch(*(x.double() for x in (q, k, v)))
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {dtype}, {device}, causal, window {options.window}")
    worst = {}
    for name, function in (("torch", with_torch), ("sparsek", with_sparsek)):
        worst[name] = (function(q, k, v) - exact).abs().max().item()
        took = seconds(lambda function=function: function(q, k, v))
        print(f"{name:<8} {1e3 * took:8.1f} ms   largest error against float64 {worst[name]:.1e}")
    return 0 if worst["sparsek"] <= 2 * worst["torch"] + 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
