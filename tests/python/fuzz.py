"""Random problems against the float64 formula, until time is up; the first wrong one ends it.

    python tests/python/fuzz.py                          a minute of all kinds, on the GPU where there is one
    python tests/python/fuzz.py products --seconds 600
    python tests/python/fuzz.py attention --seed 7 --only 123   that problem again

Sizes are larger and stranger than those of the tests: they reach the kernels for few queries and few columns, shared
rounds, packed heads, split rows and long lists by chance. "views" are small problems whose arrays lie anyhow in memory.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import numpy as np
import reference
import torch
from attention_cases import Case, documents, padded_lists, random_blocks
from product_cases import PRODUCTS, check, sparse
from test_attention import run_case

from sparsek import attention, backends, bsr_gemm

GPU = any(row.name == "sm90" and row.available for row in backends())
DEVICE = "cuda" if GPU else "cpu"
MOST_PAIRS = 2e7 if GPU else 1e5  # query-key pairs of all heads: float64 scores, and a dense mask made on the CPU
MOST_FLOPS = 1e11 if GPU else 1e8


def log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


def length(rng: np.random.Generator, high: int) -> int:
    """Any, or one beside a multiple of a tile."""
    if rng.random() < 0.6:
        return log_uniform(rng, 1, high)
    return max(1, 64 * log_uniform(rng, 1, high // 64) + int(rng.integers(-1, 2)))


def pick(rng: np.random.Generator, *options):
    return options[rng.integers(len(options))]


def attention_problem(rng: np.random.Generator) -> None:
    kv_heads, batch = log_uniform(rng, 1, 8), log_uniform(rng, 1, 3)
    heads = kv_heads * pick(rng, 1, 1, 2, 3, 4, 8)
    head_dim = pick(rng, 32, 64, 64, 96, 128, 128, 192, 256, 8 * int(rng.integers(1, 33)))
    value_dim = pick(rng, None, None, None, 64, 128, 8 * int(rng.integers(1, 33)))
    q_len, kv_len = length(rng, 3000), length(rng, 6000)
    if rng.random() < 0.3:
        q_len = log_uniform(rng, 1, 16)  # few queries
    elif rng.random() < 0.3:
        kv_len = q_len
    most = MOST_PAIRS / batch / heads
    q_len = max(1, min(q_len, int(most / kv_len)))
    kind = pick(rng, "dense", "dense", "blocks", "blocks", "lists", "documents")
    q_block = pick(rng, 64, 128, 128, 192, 256, 64 * int(rng.integers(1, 9)))
    kv_block = pick(rng, 16, 32, 64, 128, 256, 16 * int(rng.integers(1, 17)))
    lists = pick(rng, 1, kv_heads, None)
    mask = None
    if kind == "blocks":
        density, batches = pick(rng, 0.02, 0.1, 0.5, 0.9, rng.random()), pick(rng, 1, batch)
        mask = random_blocks(q_block, kv_block, density, batches=batches, heads=lists, partial=rng.random() < 0.5)
    elif kind == "lists":
        mask = padded_lists(q_block, kv_block, log_uniform(rng, 1, 40), heads=lists)
    elif kind == "documents":
        ends = np.sort(rng.integers(0, kv_len + 1, log_uniform(rng, 1, 8) - 1))
        q_len = kv_len = min(kv_len, int(most**0.5))
        ends = np.minimum(ends, kv_len)  # so that some documents are empty
        mask = documents(*(int(x) for x in np.diff(ends, prepend=0, append=kv_len)), block=pick(rng, 64, 128))
    bounds = [None, 0, log_uniform(rng, 1, 4000), log_uniform(rng, 1, 300)]
    case = Case(
        kind,
        q_len,
        kv_len,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        causal=bool(rng.random() < 0.4),
        window=(pick(rng, *bounds), pick(rng, *bounds)) if rng.random() < 0.3 else None,
        mask=mask,
        layout=pick(rng, "bshd", "bhsd"),
    )
    backend = pick(rng, *["sm90"] * 8, "wmma") if GPU else "cpu"
    dtype = pick(rng, torch.float16, torch.bfloat16)
    print(backend, dtype, case.__dict__, (q_block, kv_block, lists) if mask else "", flush=True)
    run_case(case, backend, dtype, rng)


def product_problem(rng: np.random.Generator) -> None:
    product = pick(rng, *PRODUCTS, "sparse_dense", "dense_sparse", "dense")
    block = tuple(int(side) for side in rng.choice([16, 32, 64, 128], 2))
    if rng.random() < 0.6:
        block = (block[0], block[0])
    size = tuple(log_uniform(rng, 1, most) for most in (12000 // block[0], 4000 // block[0], 6000 // block[1]))
    free = pick(rng, log_uniform(rng, 1, 300), 16 * log_uniform(rng, 1, 20), log_uniform(rng, 1, 3000))
    depth = 8 * log_uniform(rng, 1, 60)
    other = free if product in ("sparse_dense", "dense_sparse", "dense") else size[1] * block[0]
    inner = depth if product in ("sampled", "dense") else size[2] * block[1]
    rows = max(1, min(size[0], int(MOST_FLOPS / (2 * block[0] * other * inner))))
    size = (rows, *size[1:])
    transposed = bool(rng.random() < 0.4)
    density = pick(rng, 0.0, 0.02, 0.1, 0.3, 1.0, rng.random())
    if product == "sparse_dense" and not transposed and rng.random() < 0.4:
        density = rng.choice([0, 0.01, 0.1, 1], (rows, 1), p=[0.2, 0.4, 0.35, 0.05])  # rows of very unequal length
    options = {
        "block": block,
        "size": size,
        "free": free,
        "depth": depth,
        "order": pick(rng, "row", "column"),
        "transposed": transposed,
        "shuffled": bool(rng.random() < 0.5),
        "alpha": pick(rng, 1.0, 1.0, -0.5),
        "beta": pick(rng, 0.0, 0.0, 0.75),
        "out_dtype": pick(rng, None, None, torch.float32),
    }
    dtype = pick(rng, torch.float16, torch.bfloat16)
    shown = density if np.isscalar(density) else "unequal"
    print(product, dtype, options, shown, flush=True)

    seed = rng.integers(2**31)
    try:
        check(product, "sm90" if GPU else "cpu", dtype, np.random.default_rng(seed), density=density, **options)
    except NotImplementedError:  # rows that TMA does not take; sm90_dense for two dense operands
        if not GPU:
            raise
        check(product, None, dtype, np.random.default_rng(seed), density=density, **options)


def random_view(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype, *, unit: int, rows: bool, broadcast: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """An array that lies anyhow in a buffer of NaN, and the buffer.

    Places and steps are multiples of `unit` elements, but for those of the innermost axis: with `rows` that is the last
    one and contiguous. With `broadcast` an axis may be one of a single element, repeated.
    """
    axes = list(rng.permutation(len(shape)))
    if rows:
        axes.remove(len(shape) - 1)
        axes.append(len(shape) - 1)
    repeated = int(axes[rng.integers(len(shape) - 1)]) if broadcast and rng.random() < 0.25 else None
    held = tuple(1 if axis == repeated else side for axis, side in enumerate(shape))
    strides, step = [0] * len(shape), 1 if rows or rng.random() < 0.7 else int(rng.integers(1, 4))
    for axis in reversed(axes):
        strides[axis] = step
        step = -(-(step * held[axis] + pick(rng, 0, 0, 8, int(rng.integers(0, 100)))) // unit) * unit
    offset = unit * int(rng.integers(0, 20))
    buffer = torch.full((offset + step + 8,), float("nan"), dtype=dtype, device=DEVICE)
    view = buffer.as_strided(held, strides, offset)
    view.copy_(torch.from_numpy(rng.standard_normal(held, dtype=np.float32)))
    return view.expand(shape), buffer


def assert_written_nowhere_else(view: torch.Tensor, buffer: torch.Tensor) -> None:
    view.fill_(float("nan"))
    assert torch.isnan(buffer).all(), "elements were written beside the result"


def attention_of_views(rng: np.random.Generator, dtype: torch.dtype, unit: int) -> None:
    batch, kv_heads, group = log_uniform(rng, 1, 3), log_uniform(rng, 1, 4), pick(rng, 1, 1, 2, 4)
    q_len, kv_len, head_dim = length(rng, 600), length(rng, 900), pick(rng, 64, 128, 40)
    causal, layout = bool(rng.random() < 0.3), pick(rng, "bshd", "bhsd")

    def shape(tokens: int, heads: int) -> tuple[int, ...]:
        return (batch, tokens, heads, head_dim) if layout == "bshd" else (batch, heads, tokens, head_dim)

    heads = kv_heads * group
    q, _ = random_view(rng, shape(q_len, heads), dtype, unit=unit, rows=True, broadcast=True)
    k, _ = random_view(rng, shape(kv_len, kv_heads), dtype, unit=unit, rows=True, broadcast=True)
    v, _ = random_view(rng, shape(kv_len, kv_heads), dtype, unit=unit, rows=True, broadcast=True)
    out, buffer = random_view(rng, shape(q_len, heads), dtype, unit=unit, rows=True, broadcast=False)
    print(layout, [(tuple(x.shape), x.stride(), x.storage_offset()) for x in (q, k, v, out)], causal, flush=True)

    def bshd(x: torch.Tensor) -> torch.Tensor:
        return x if layout == "bshd" else x.transpose(1, 2)

    allowed = reference.allowed_pairs(q_len, kv_len, causal=causal, device=DEVICE)
    expected = reference.attention(bshd(q), bshd(k), bshd(v), allowed)
    lowprec = reference.attention(bshd(q), bshd(k), bshd(v), allowed, dtype=dtype)
    try:
        attention(q, k, v, causal=causal, layout=layout, out=out)
    except NotImplementedError as error:
        if unit == 8 or "bytes" not in str(error):
            raise
        return
    reference.assert_close(bshd(out), expected.out, lowprec.out)
    assert_written_nowhere_else(out, buffer)


def product_of_views(rng: np.random.Generator, dtype: torch.dtype, unit: int) -> None:
    block = int(rng.choice([16, 32, 64, 128]))
    rows, cols, free = (log_uniform(rng, 1, most) for most in (2000 // block, 1000 // block, 500))
    matrix, full = sparse(rng, rows, cols, (block, block), 0.3, dtype, DEVICE, transposed=bool(rng.random() < 0.5))
    if matrix.nnz and rng.random() < 0.5:
        values, _ = random_view(rng, tuple(matrix.values.shape), dtype, unit=unit, rows=False, broadcast=False)
        matrix = matrix.with_values(values.copy_(matrix.values))
    left = bool(rng.random() < 0.5)  # the matrix is a; else it is b, transposed
    x, _ = random_view(rng, (cols * block, free), dtype, unit=unit, rows=False, broadcast=True)
    out, buffer = random_view(rng, (rows * block, free), dtype, unit=unit, rows=False, broadcast=False)
    beta = pick(rng, 0.0, 0.5)
    places = [(tuple(y.shape), y.stride(), y.storage_offset()) for y in (x, out)]
    print(block, matrix.shape, left, beta, places, flush=True)

    c = out.clone()
    expected = reference.matmul(full, x, 1.0, c, beta)
    lowprec = reference.matmul(full, x, 1.0, c, beta, dtype=dtype)
    if left:
        bsr_gemm(matrix, x, c=out, beta=beta, out=out)
    else:
        bsr_gemm(x.T, matrix.T, c=out.T, beta=beta, out=out.T)
    reference.assert_close(out, expected, lowprec)
    assert_written_nowhere_else(out, buffer)


def problem_of_views(rng: np.random.Generator) -> None:
    run = pick(rng, attention_of_views, product_of_views)
    run(rng, pick(rng, torch.float16, torch.bfloat16), pick(rng, 1, 8, 8))


PROBLEMS = {"attention": attention_problem, "products": product_problem, "views": problem_of_views}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    # [] is what argparse makes of none, and checks too.
    parser.add_argument(
        "kind", nargs="*", choices=[*PROBLEMS, []], metavar="KIND", help=f"{', '.join(PROBLEMS)}; default: all"
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--problems", type=int, help="so many, however long they take")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="number of the one problem to run")
    options = parser.parse_args(arguments)
    kinds = options.kind or list(PROBLEMS)
    numbers = itertools.count() if options.only is None else [options.only]
    end, done = time.monotonic() + options.seconds, 0
    for number in itertools.islice(numbers, options.problems):
        if options.problems is None and time.monotonic() > end:
            break
        print(f"seed {options.seed}, problem {number}:", end=" ")
        PROBLEMS[kinds[number % len(kinds)]](np.random.default_rng([options.seed, number]))
        done += 1
    print(f"{done} problems, none wrong")


if __name__ == "__main__":
    main()
