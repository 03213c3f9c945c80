"""A document far longer than the window: causal sliding-window attention, as Mistral has it, in linear time.

Each token sees itself and the tokens before it, `window` in all. The window is given to the kernel, which needs no
mask; the same as a BlockMask, which can be combined with others, is compared with it.
python examples/long_document.py [--length 16384] [--window 512]; exits with 1 where the two differ.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

import sparsek
from sparsek import BlockMask
from sparsek.torch import attention

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
ON_GPU = any(row.operation == "attention" and row.available and row.name != "cpu" for row in sparsek.backends())
DEVICE, DTYPE = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.float32)


def timed(call):
    if ON_GPU:
        call()
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = call()
    if ON_GPU:
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=16384)
    parser.add_argument("--window", type=int, default=512)
    options = parser.parse_args()
    shape = (1, options.length)
    q = torch.randn(*shape, HEADS, HEAD_DIM, device=DEVICE, dtype=DTYPE)
    k, v = (torch.randn(*shape, KV_HEADS, HEAD_DIM, device=DEVICE, dtype=DTYPE) for _ in range(2))
    window = (options.window - 1, 0)

    by_window, seconds = timed(lambda: attention(q, k, v, window=window))
    print(f"window {options.window} of {options.length} tokens: {1e3 * seconds:.0f} ms")

    mask = BlockMask.sliding_window(options.length, options.length, window).to(q)
    by_mask, seconds = timed(lambda: attention(q, k, v, mask=mask))
    print(
        f"as a mask of blocks ({mask.density:.1%} of all): {1e3 * seconds:.0f} ms, {mask.nbytes / 1e6:.2f} MB of lists"
    )

    last, seconds = timed(lambda: attention(q[:, -1024:], k, v, causal=True))
    print(f"all tokens before it, for the last {last.shape[1]} tokens alone: {1e3 * seconds:.0f} ms")

    error = (by_window - by_mask).abs().max().item()
    print(f"largest difference between window and mask: {error:.1e}")
    return 0 if error < 2e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
