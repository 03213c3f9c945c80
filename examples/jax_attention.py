"""A compiled JAX program with sparsek inside: each token of a long sequence picks the blocks of keys that it reads.

    python examples/jax_attention.py [--length 1024] [--keep 4] [--density 0.5]

A transformer layer under `jax.jit`. Its attention scores every block of keys against every block of queries by their
means, keeps the best few, and attends to those; its feed-forward layer has block-sparse weights. Which blocks are read
changes with every input, and nothing is compiled anew. Each result is compared with the same layer written in plain
jax.numpy, where blocks are skipped by masking scores.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("jax_attention.py: error: this example needs JAX: pip install 'sparsek[jax]'")

import sparsek
import sparsek.jax

HEADS, HEAD_DIM, BLOCK = 4, 32, 64
WIDTH = HEADS * HEAD_DIM


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse() -> argparse.Namespace:
    parser = Parser(description="A compiled JAX program with sparsek inside.")
    parser.add_argument("--length", type=int, default=1024, help="tokens")
    parser.add_argument("--keep", type=int, default=4, help=f"blocks of {BLOCK} keys that a block of queries reads")
    parser.add_argument("--density", type=float, default=0.5, help="share of feed-forward weight blocks that is kept")
    options = parser.parse_args()
    num_blocks = -(-options.length // BLOCK)
    if options.length < 1:
        parser.error(f"--length: expected at least 1, got {options.length}")
    if not 1 <= options.keep <= num_blocks:
        parser.error(f"--keep: expected 1 to {num_blocks}, the blocks of {options.length} tokens, got {options.keep}")
    if not 0 < options.density <= 1:
        parser.error(f"--density: expected above 0 and at most 1, got {options.density}")
    return options


def best_blocks(q, k, keep):
    """(1, HEADS, blocks, keep): the blocks of keys whose mean goes best with that of each block of queries."""
    length = q.shape[1]
    padded = -(-length // BLOCK) * BLOCK
    means = (
        jnp.pad(x, ((0, 0), (0, padded - length), (0, 0), (0, 0)))
        .reshape(1, padded // BLOCK, BLOCK, HEADS, HEAD_DIM)
        .mean(2)
        for x in (q, k)
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", *means)
    return jax.lax.top_k(scores, keep)[1]


def layer(attend, multiply, parameters, x, keep):
    q, k, v = (jnp.reshape(x @ parameters[name], (1, -1, HEADS, HEAD_DIM)) for name in ("q", "k", "v"))
    x = x + attend(q, k, v, best_blocks(q, k, keep)).reshape(x.shape) @ parameters["out"]
    return x + multiply(jax.nn.gelu(multiply(x, parameters["up"])), parameters["down"])


def sparse_attention(q, k, v, blocks):
    length = q.shape[1]
    mask = sparsek.BlockMask.from_indices(
        blocks, None, q_len=length, kv_len=length, q_block=BLOCK, kv_block=BLOCK, check=False
    )
    return sparsek.jax.attention(q, k, v, mask=mask, causal=True)


def dense_attention(q, k, v, blocks):
    length = q.shape[1]
    token = jnp.arange(length)
    seen = jax.nn.one_hot(blocks, -(-length // BLOCK), dtype=bool).any(3)  # (1, HEADS, q blocks, kv blocks)
    seen = seen[:, :, token[:, None] // BLOCK, token[None, :] // BLOCK] & (token[None, :] <= token[:, None])
    scores = jnp.where(seen, jnp.einsum("bqhd,bkhd->bhqk", q, k) / HEAD_DIM**0.5, -jnp.inf)
    top = jnp.max(scores, -1, keepdims=True, initial=-1e30)
    weights = jnp.exp(scores - top)
    weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)  # of zeros: a token that sees nothing
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def main() -> int:
    options = parse()
    cpu = jax.devices("cpu")[0]  # float32, so that the two programs can be compared closely
    rng = np.random.default_rng(0)

    def matrix(rows, cols):
        values = rng.standard_normal((rows, cols), dtype=np.float32) / np.sqrt(rows)
        return jax.device_put(values, cpu)

    parameters = {name: matrix(WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
    for name, shape in (("up", (WIDTH, 4 * WIDTH)), ("down", (4 * WIDTH, WIDTH))):
        parameters[name] = sparsek.prune(matrix(*shape), (32, 32), options.density)
    plain = parameters | {name: parameters[name].to_dense() for name in ("up", "down")}

    compilations = []

    @jax.jit
    def with_sparsek(parameters, x):
        compilations.append(x.shape)  # runs while JAX traces, and not again
        return layer(sparse_attention, sparsek.jax.bsr_gemm, parameters, x, options.keep)

    with_numpy = jax.jit(lambda parameters, x: layer(dense_attention, jnp.matmul, parameters, x, options.keep))

    worst = 0.0
    with jax.default_matmul_precision("highest"):
        for step in range(3):
            x = matrix(options.length, WIDTH) * WIDTH**0.5
            difference = float(jnp.abs(with_sparsek(parameters, x) - with_numpy(plain, x)).max())
            worst = max(worst, difference) if difference == difference else difference
            print(f"input {step}: largest difference from plain jax.numpy {difference:.1e}")
    num_blocks = -(-options.length // BLOCK)
    print(f"{options.keep} of {num_blocks} blocks of keys read, {options.density:.0%} of the feed-forward blocks kept")
    print(f"compiled {len(compilations)} time(s)")
    return 0 if worst < 1e-3 and len(compilations) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
