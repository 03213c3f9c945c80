"""Small cases of every GPU kernel for compute-sanitizer, checked against float64 on the CPU.

    compute-sanitizer --tool memcheck --show-backtrace device --kernel-name kns=sparsek \\
        python tests/python/sanitizer_cases.py [OPERATION ...]

The references stay off the GPU, since racecheck does not survive cuBLAS.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from sparsek import BlockMask, BSRMatrix, attention, bsr_gemm

MASKS = ("dense", "causal", "window", "lists of 128", "lists of 64", "partial")
GROWING = "lists, scores that grow"  # where the lists' kernel of head_dim 128 makes weights anew
# q_len, kv_len, heads, kv_heads
SMALL = (300, 333, 4, 2)
SHAPES = {
    "more tiles than CTAs": (500, 500, 70, 70),  # nor are all heads visited together
    "more lists than CTAs": (2048, 2048, 10, 10),
    "two rounds": (2048, 2048, 10, 10),
    "window, more tiles than CTAs": (500, 500, 70, 70),  # of which the last warpgroups see no first keys
    "two teams": (20, 800, 100, 100),
    "one query": (1, 3333, 8, 2),
    "one query with a list": (1, 3333, 8, 2),
    "packed heads": (5, 3333, 8, 2),
    "packed heads with a list": (5, 3333, 8, 2),
}
CAUSAL = ("causal", "more tiles than CTAs", "two rounds", "one query", "packed heads", "packed heads with a list")


def half(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).half()


def attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and weights."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.double().repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k) / q.shape[-1] ** 0.5
    weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), -1).nan_to_num(0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), weights


def attention_case(rng: np.random.Generator, backend: str, head_dim: int, kind: str, weighed: bool = False) -> None:
    """weighed: with return_weights, and with scores so large that some weights are made anew."""
    q_len, kv_len, heads, kv_heads = SHAPES.get(kind, SMALL)
    q = half(rng, 1, q_len, heads, head_dim)
    k, v = (half(rng, 1, kv_len, kv_heads, head_dim) for _ in range(2))
    if kind == GROWING:  # by more powers of two than a float32 has, from one tile of keys to the next, or they fall
        q[..., 0] = torch.from_numpy(rng.choice([-32.0, 0.0, 32.0], q.shape[:-1]))
        k[..., 0] = (torch.arange(kv_len) // 128 * 256)[:, None].half()
    query, key = torch.arange(q_len)[:, None] + kv_len - q_len, torch.arange(kv_len)[None]
    allowed, options = torch.ones(q_len, kv_len, dtype=torch.bool), {}
    if kind in CAUSAL:
        options["causal"] = True
        allowed &= key <= query
    if "window" in kind:
        options["window"] = (40, 10)
        allowed &= (key >= query - 40) & (key <= query + 10)
    if "list" in kind or kind == "partial":
        block, kv_block = 64 if kind == "lists of 64" else 128, 32
        if kind == "partial":
            listed = torch.from_numpy(rng.random((q_len, kv_len)) < 0.5)
        else:
            # Where there are more, lists about equal, so that the last tiles are shared.
            density = 0.9 if kind == "more lists than CTAs" else 0.5
            blocks = torch.from_numpy(rng.random((-(-q_len // block), -(-kv_len // kv_block))) < density)
            listed = blocks.repeat_interleave(block, 0)[:q_len].repeat_interleave(kv_block, 1)[:, :kv_len]
        options["mask"] = BlockMask.from_dense(listed[None, None].cuda(), q_block=block, kv_block=kv_block)
        allowed &= listed
    if weighed:
        q[:, : q_len // 2] *= 100
        k *= 100
    what = f"attention {backend} head_dim={head_dim} {kind}"
    expected, expected_weights = attention_reference(q, k, v, allowed)
    if not weighed:
        out = attention(q.cuda(), k.cuda(), v.cuda(), backend=backend, **options)
        error = (out.cpu().double() - expected).abs().max().item()
        assert error < 3e-3, f"{what}: {error}"
        return
    _, weights = attention(q.cuda(), k.cuda(), v.cuda(), backend=backend, return_weights=True, **options)
    weights = weights.cpu().double()
    seen = allowed.any(-1)
    assert (weights.sum(-1)[..., seen] - 1).abs().max().item() < 2e-3, f"{what}: weights do not add up"
    error = (weights - expected_weights)[..., q_len // 2 :, :].abs().max().item()
    assert error < 3e-2, f"{what}: weights {error}"


def sparse(rng: np.random.Generator, rows: int, cols: int, block: tuple[int, int]) -> tuple[BSRMatrix, torch.Tensor]:
    """A matrix on the GPU with every third block, and the same as a dense one on the CPU."""
    keep = rng.random((rows // block[0], cols // block[1])) < 0.34
    values = half(rng, int(keep.sum()), *block)
    full = torch.zeros(*keep.shape, *block, dtype=torch.float64)
    full[torch.from_numpy(keep)] = values.double()
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(keep.sum(axis=1))])).cuda()
    columns = torch.from_numpy(np.nonzero(keep)[1].astype(np.int32)).cuda()
    return BSRMatrix(values.cuda(), offsets, columns, (rows, cols)), full.permute(0, 2, 1, 3).reshape(rows, cols)


def check_product(out: object, expected: torch.Tensor, what: str) -> None:
    error = (torch.as_tensor(out).cpu().double() - expected).abs().max().item()
    assert error < 1e-3 * expected.abs().max().item() + 1e-3, f"bsr_gemm {what}: {error}"


def at_pattern(pattern: BSRMatrix, product: torch.Tensor) -> torch.Tensor:
    """Zeros where the pattern has no block."""
    blocks = torch.as_tensor(pattern.with_values(torch.ones_like(pattern.values)).to_dense())
    return torch.where(blocks.cpu() != 0, product, 0)


def product_case(rng: np.random.Generator, backend: str, block: int, free: int) -> None:
    size = 384
    a, a_full = sparse(rng, size, size, (block, block))
    b, b_full = sparse(rng, size, size, (block, block))
    x, y = half(rng, size, free), half(rng, free, size)
    pairs = [
        (bsr_gemm(a, x.cuda(), backend=backend), a_full @ x.double()),
        (bsr_gemm(y.cuda(), a, backend=backend), y.double() @ a_full),
        (bsr_gemm(a, b, backend=backend), a_full @ b_full),
        (bsr_gemm(x.cuda(), y.cuda(), backend=backend), x.double() @ y.double()),
    ]
    if backend != "sm90_dense":
        sampled = bsr_gemm(x.cuda(), y.cuda(), out_pattern=a, backend=backend)
        pairs.append((sampled.to_dense(), at_pattern(a, x.double() @ y.double())))
    for number, (out, expected) in enumerate(pairs):
        check_product(out, expected, f"{backend} {block} {free} {number}")


def long_rows_case(rng: np.random.Generator, block: int) -> None:
    """Rows that several CTAs share: one with all blocks among others with one each."""
    count, free = 2048 // block, 3848  # of the last tile 8 columns
    columns = np.concatenate([np.arange(count), np.arange(1, count)]).astype(np.int32)
    offsets = np.concatenate([[0], count + np.arange(count)])
    values = half(rng, len(columns), block, block)
    matrix = BSRMatrix(values.cuda(), *(torch.from_numpy(x).cuda() for x in (offsets, columns)), (2048, 2048))
    x = half(rng, 2048, free)
    expected = torch.as_tensor(matrix.to_dense()).cpu().float() @ x.float()
    check_product(bsr_gemm(matrix, x.cuda(), backend="sm90"), expected, f"long rows {block}")


def panels_case(rng: np.random.Generator, block: int, free: int) -> None:
    """CTAs that take several tiles: panels abreast (blocks of 64), narrow ones (of 16, 32), a last one of 8 columns."""
    a, a_full = sparse(rng, 2048, 256, (block, block))
    x = half(rng, 256, free)
    check_product(bsr_gemm(a, x.cuda(), backend="sm90"), a_full.float() @ x.float(), f"panels {block} {free}")


def added_case(rng: np.random.Generator, block: int, free: int, dtype: torch.dtype, across: bool) -> None:
    """A product that is added to what is there."""
    a, a_full = sparse(rng, 640, 512, (block, block))
    x, c = half(rng, 512, free), half(rng, 640, free).to("cuda", dtype)
    c = c.T.contiguous().T if across else c
    expected = a_full @ x.double() + 0.5 * c.double().cpu()
    product = bsr_gemm(a, x.cuda(), c=c, beta=0.5, out=c, backend="sm90")
    check_product(product, expected, f"and c {block} {free} {dtype} {across}")


def added_sampled_case(rng: np.random.Generator, block: int) -> None:
    pattern, c_full = sparse(rng, 512, 640, (block, block))
    x, y = half(rng, 512, 72), half(rng, 72, 640)
    sampled = bsr_gemm(x.cuda(), y.cuda(), out_pattern=pattern, c=pattern, beta=0.5, backend="sm90")
    check_product(
        sampled.to_dense(), at_pattern(pattern, x.double() @ y.double()) + 0.5 * c_full, f"sampled, c {block}"
    )


def sampled_case(rng: np.random.Generator, block: int, rows: int, cols: int, depth: int) -> None:
    """Several rounds of tiles, of three units of columns and fewer, or few tiles, which CTAs share along a deep k."""
    pattern, _ = sparse(rng, rows, cols, (block, block))
    x, y = half(rng, rows, depth), half(rng, depth, cols)
    sampled = bsr_gemm(x.cuda(), y.cuda(), out_pattern=pattern, backend="sm90")
    check_product(sampled.to_dense(), at_pattern(pattern, x.double() @ y.double()), f"sampled {block}")


def few_columns_case(rng: np.random.Generator, block: int, free: int, rows: int) -> None:
    a, a_full = sparse(rng, rows, 256, (block, block))
    x = half(rng, 256, free)
    expected = a_full @ x.double()
    check_product(bsr_gemm(a, x.cuda(), backend="sm90"), expected, f"few columns {block} {free}")
    tokens = x[:, : free - 3].T.contiguous()  # as a layer has them
    out = bsr_gemm(tokens.cuda(), a.T, backend="sm90")
    check_product(out, expected[:, : free - 3].T, f"few tokens {block} {free}")


def many_pairs_case(rng: np.random.Generator, block: int) -> None:
    """Two sparse operands with more tiles than the chip holds CTAs, some of which have no common block."""
    a, a_full = sparse(rng, 3072, 512, (block, block))
    b, b_full = sparse(rng, 512, 3072, (block, block))
    check_product(bsr_gemm(a, b, backend="sm90"), a_full @ b_full, f"many pairs {block}")


OPERATIONS = ("attention", "bsr_gemm")


def main(operations: list[str]) -> None:
    for operation in operations:
        if operation not in OPERATIONS:
            sys.exit(f"OPERATION: expected one of {', '.join(OPERATIONS)}, got {operation!r}")
    rng = np.random.default_rng(0)
    count = 0
    if "attention" in operations:
        for backend in ("sm90", "wmma"):
            for head_dim in (64, 128, 256):
                for kind in (*MASKS, *SHAPES):
                    attention_case(rng, backend, head_dim, kind)
                    count += 1
        attention_case(rng, "sm90", 128, GROWING)
        count += 1
        for head_dim in (64, 128, 256):
            for kind in MASKS:
                attention_case(rng, "sm90", head_dim, kind, weighed=True)
                count += 1
    if "bsr_gemm" in operations:
        for block in (16, 128):
            long_rows_case(rng, block)
            count += 1
        for block, free in ((16, 3848), (16, 2304), (32, 3848), (32, 2304), (64, 3848)):
            panels_case(rng, block, free)
            count += 1
        for block in (16, 32, 64, 128):
            # The kernel of few columns, where a CTA stages results where sums were, and where not; the others.
            three = 3 * 66 * min(block, 64)  # tiles for each cluster
            for free, rows in ((16, 4352), (128, 4352), (200, three), (256, 4352), (328, 1024), (328, 4096)):
                few_columns_case(rng, block, free, rows)
                count += 2
        for block in (64, 128):
            many_pairs_case(rng, block)
            count += 1
        for block in (32, 128):
            for shape in ((2048, 3712, 72), (512, 640, 2056)):
                sampled_case(rng, block, *shape)
                count += 1
        for block in (32, 128):
            for free, across in ((64, False), (456, False), (456, True)):
                for dtype in (torch.float16, torch.float32):
                    added_case(rng, block, free, dtype, across)
                    count += 1
            added_sampled_case(rng, block)
            count += 1
        for backend in ("sm90", "wmma", "simt", "sm90_dense"):
            for block in (16, 32, 64, 128):
                for free in (16, 264):
                    product_case(rng, backend, block, free)
                    count += 4 if backend == "sm90_dense" else 5
    print(f"{count} cases right")


if __name__ == "__main__":
    main(sys.argv[1:] or list(OPERATIONS))
