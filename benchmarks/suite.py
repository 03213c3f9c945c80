"""The benchmark cases as data, with their FLOP and byte counts. Names are stable: results are kept under them."""

from __future__ import annotations

import difflib
import fnmatch
from dataclasses import asdict, dataclass


def band_pairs(q_len: int, kv_len: int, left: int | None, right: int | None) -> int:
    """Pairs with position - left <= key <= position + right, where position = query + kv_len - q_len."""

    def keys_up_to(offset: int) -> int:
        """Pairs with key <= position + offset: over the queries, the sum of 0 ... kv_len clipped."""
        first, last = kv_len - q_len + offset + 1, kv_len + offset  # keys of the first and of the last query
        if first >= kv_len:
            return q_len * kv_len
        growing_from, growing_to = max(first, 1), min(last, kv_len)
        grows = max(0, growing_to - growing_from + 1)
        return grows * (growing_from + growing_to) // 2 + max(0, last - kv_len) * kv_len

    up_to = q_len * kv_len if right is None else keys_up_to(right)
    return up_to - (0 if left is None else keys_up_to(-left - 1))


@dataclass(frozen=True)
class AttentionCase:
    """Attention forward. All lengths are in tokens, blocks too."""

    name: str
    group: str  # "attention", "small", "long" or "cpu"
    length: int  # keys
    heads: int  # of q
    head_dim: int
    batch: int = 1
    q_len: int | None = None  # length
    kv_heads: int | None = None  # heads
    causal: bool = False
    window: int | None = None  # keys before a query's own; with causal
    q_block: int | None = None  # of a top-k mask, with kv_block and blocks
    kv_block: int | None = None
    blocks: int | None = None  # random kv blocks for each head and q block
    kv_lists: bool = False  # the query heads of a kv head share a list
    documents: int | None = None  # packed one after the other, of unequal lengths
    calls_in_graph: int = 0  # timed as replays of a CUDA graph of so many calls; 0: eager
    dtype: str = "float16"
    device: str = "cuda"
    op: str = "attention"

    @property
    def queries(self) -> int:
        return self.length if self.q_len is None else self.q_len

    @property
    def num_kv_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def masked(self) -> bool:
        """Whether there is a block mask or a window, which dense kernels do not know."""
        return bool(self.blocks or self.documents or self.window is not None)

    @property
    def document_lengths(self) -> list[int]:
        """Lengths that add up to `length`: multiples of 128 from half to one and a half times the mean."""
        count, unit = self.documents, 128 if self.length % (128 * self.documents) == 0 else 1
        mean = self.length // unit / count
        ends = [round(mean * (i + (0.5 if i % 2 else 0))) for i in range(1, count)] + [self.length // unit]
        return [unit * (end - begin) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def pairs(self) -> int:
        """Attended (query, key) pairs of one head of one batch; every head has as many."""
        if self.blocks:
            return self.queries * self.blocks * self.kv_block
        if self.documents:
            return sum(band_pairs(n, n, None, 0 if self.causal else None) for n in self.document_lengths)
        return band_pairs(self.queries, self.length, self.window, 0 if self.causal else None)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each of q k^T and p v, attended pairs only."""
        return 4 * self.batch * self.heads * self.head_dim * self.pairs

    @property
    def bytes(self) -> int:
        """q, k, v and out, each moved once; of k and v what block lists name, if that is less, as if none overlap."""
        keys = self.length
        if self.blocks:
            lists = (1 if self.kv_lists else self.heads // self.num_kv_heads) * -(-self.queries // self.q_block)
            keys = min(keys, lists * self.blocks * self.kv_block)
        rows = 2 * self.queries * self.heads + 2 * keys * self.num_kv_heads
        return self.batch * rows * self.head_dim * (4 if self.dtype == "float32" else 2)

    @property
    def params(self) -> dict:
        fields = asdict(self) | {"q_len": self.queries, "kv_heads": self.num_kv_heads}
        dropped = ("name", "group", "op") + (() if self.kv_lists else ("kv_lists",))
        return {key: value for key, value in fields.items() if key not in dropped and value is not None}

    def estimate(self, backend: str) -> float:
        """Seconds that a backend of sparsek is expected to take; 0 where it is not known to be slow."""
        return 0.0


@dataclass(frozen=True)
class BsrCase:
    """A product of (size, size) and (size, cols) matrices, some of them with random blocks.

    product  "dsd" BSR x dense, "dds" dense x BSR, "dss" BSR x BSR, "sdd" dense x dense sampled at BSR blocks; the
             letters are result, a, b
    density  of the blocks
    rows     "equal": every block row has equally many, as Blocked-ELL needs; "zipf": block row i has about i^-0.75
             times as many, the rows in a random order; "arrow": one row has all blocks, the others one each
    transposed  "a" or "b": the operand that lies in memory as its transpose, a sparse one as the .T of a BSRMatrix; "b"
             of "dds" is a linear layer, and `rows` are those of its weight
    """

    name: str
    product: str
    block: int
    size: int
    density: float
    cols: int | None = None  # size; of b in "dsd", and the rows of a in "dds"
    rows: str = "equal"
    transposed: str | None = None
    group: str = "bsr_gemm"
    dtype: str = "float16"
    device: str = "cuda"
    calls_in_graph: int = 0
    op: str = "bsr_gemm"

    @property
    def blocks_in_row(self) -> int:
        return max(1, round(self.density * (self.size // self.block)))

    @property
    def layer(self) -> bool:
        """Whether it is x @ weight.T."""
        return self.product == "dds" and self.transposed == "b"

    @property
    def row_lengths(self) -> list[int]:
        """Blocks of each block row; in a Zipf case of the longest, the second, and so on."""
        count = self.size // self.block
        if self.rows == "equal":
            return [self.blocks_in_row] * count
        if self.rows == "arrow":
            return [count] + [1] * (count - 1)
        weights = [(i + 1) ** -0.75 for i in range(count)]
        return [min(count, max(1, round(count * self.blocks_in_row * w / sum(weights)))) for w in weights]

    @property
    def nnz(self) -> int:
        """Stored blocks of one BSR matrix."""
        return sum(self.row_lengths)

    @property
    def num_cols(self) -> int:
        return self.size if self.cols is None else self.cols

    @property
    def flops(self) -> int:
        """Products of stored blocks only."""
        if self.product == "dss":  # each block of a meets one block row of b
            return 2 * self.nnz * self.blocks_in_row * self.block**3
        return 2 * self.nnz * self.block**2 * (self.size if self.product == "sdd" else self.num_cols)

    @property
    def bytes(self) -> int:
        """Operands and result, each moved once."""
        dense, sparse = self.size * self.num_cols, self.nnz * self.block**2
        count = {"dsd": (2, 1), "dds": (2, 1), "dss": (1, 2), "sdd": (2, 1)}[self.product]
        return (count[0] * dense + count[1] * sparse) * (4 if self.dtype == "float32" else 2)

    @property
    def params(self) -> dict:
        fields = asdict(self) | {"cols": self.num_cols, "nnz": self.nnz}
        dropped = ("name", "group", "op", "calls_in_graph") + (("rows",) if self.rows == "equal" else ())
        return {key: value for key, value in fields.items() if key not in dropped and value is not None}

    def estimate(self, backend: str) -> float:
        """Seconds that a backend of sparsek is expected to take; 0 where it is not known to be slow."""
        return self.flops / 10e12 if backend == "simt" else 0.0


Case = AttentionCase | BsrCase


def _dense() -> list[Case]:
    cases = []
    for head_dim in (64, 128, 256):
        for length in (1024, 4096, 16384):
            for causal in (False, True):
                name = f"attn/dense/d{head_dim}/s{length}" + ("/causal" if causal else "")
                shape = {"heads": 2048 // head_dim, "head_dim": head_dim, "batch": 16384 // length}
                cases.append(AttentionCase(name, "attention", length, **shape, causal=causal))
    for head_dim in (64, 128):
        name = f"attn/dense/d{head_dim}/s131072/causal"
        cases.append(AttentionCase(name, "long", 131072, 2048 // head_dim, head_dim, causal=True))
        # What the sparse cases of that length are a fraction of.
        cases.append(AttentionCase(name.removesuffix("/causal"), "long", 131072, 2048 // head_dim, head_dim))
    # CTAs that drift apart here read keys from memory that L2 no longer holds.
    for head_dim in (64, 128, 256):
        cases.append(AttentionCase(f"attn/dense/d{head_dim}/s262144", "long", 262144, 1024 // head_dim, head_dim))
    # Heads that are no power of two, whose unequal tiles are harder to deal evenly.
    for head_dim, length, heads in ((64, 1024, 40), (128, 1024, 33), (128, 4096, 20)):
        name = f"attn/dense/d{head_dim}/s{length}/h{heads}/causal"
        cases.append(AttentionCase(name, "attention", length, heads, head_dim, causal=True))
    gqa = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    cases.append(AttentionCase("attn/dense/d128/s8192/gqa32x8/causal", "attention", 8192, **gqa, causal=True))
    for q_len, suffix in ((1, ""), (4, "/q4")):
        decoding = gqa | {"q_len": q_len}
        name = f"gqa32x8{suffix}"
        cases.append(AttentionCase(f"attn/decode/d128/s16384/batch16/{name}", "attention", 16384, **decoding, batch=16))
        cases.append(AttentionCase(f"attn/decode/d128/s131072/{name}", "attention", 131072, **decoding))
    return cases


def _topk(head_dim: int, length: int, q_block: int, kv_block: int, blocks: int, gqa=False, dtype="float16") -> Case:
    sides = f"b{q_block}" if q_block == kv_block else f"b{q_block}x{kv_block}"
    name = f"attn/topk/d{head_dim}/s{length}/{sides}/k{blocks}" + "/gqa32x8" * gqa
    name += "" if dtype == "float16" else f"/{dtype}"
    heads, kv_heads = (32, 8) if gqa else (2048 // head_dim, None)
    group = "long" if length > 32768 else "attention"
    lists = {"q_block": q_block, "kv_block": kv_block, "blocks": blocks}
    return AttentionCase(name, group, length, heads, head_dim, kv_heads=kv_heads, dtype=dtype, **lists)


def _sparse() -> list[Case]:
    cases = []
    for head_dim in (64, 128):
        for length, blocks in ((8192, 16), (8192, 32), (32768, 16), (32768, 32), (131072, 16), (131072, 32)):
            cases.append(_topk(head_dim, length, 128, 128, blocks))
        cases.append(_topk(head_dim, 8192, 64, 64, 32))
        cases.append(_topk(head_dim, 32768, 64, 64, 64))
        cases.append(_topk(head_dim, 8192, 32, 32, 64))
        cases.append(_topk(head_dim, 8192, 64, 32, 64))
        cases.append(_topk(head_dim, 32768, 64, 32, 128))
    cases.append(_topk(128, 1024, 64, 64, 4))
    cases.append(_topk(256, 8192, 128, 128, 16))
    cases.append(_topk(256, 32768, 128, 128, 32))
    cases.append(_topk(128, 32768, 128, 128, 32, gqa=True))
    # Random numbers in bfloat16 cost less power, and a peer takes nothing else.
    for length, block, blocks in ((8192, 128, 32), (8192, 64, 32), (32768, 128, 32), (32768, 64, 64)):
        cases.append(_topk(128, length, block, block, blocks, dtype="bfloat16"))
    decoding = {"heads": 32, "kv_heads": 8, "head_dim": 128, "q_len": 1, "q_block": 64, "kv_block": 64, "blocks": 64}
    cases.append(AttentionCase("attn/decode/d128/s131072/b64/k64/gqa32x8", "attention", 131072, **decoding))
    for q_len, suffix in ((1, ""), (4, "/q4")):
        shared = decoding | {"q_len": q_len, "blocks": 512, "kv_lists": True}
        name = f"attn/decode/d128/s131072/b64/k512/gqa32x8/kv_lists{suffix}"
        cases.append(AttentionCase(name, "attention", 131072, **shared))
    cases.append(_topk(128, 524288, 128, 128, 32))
    windows = [(64, 16384, 2048), (128, 16384, 2048), (128, 524288, 2048)]
    # 128 and 512: what models have whose other layers see everything.
    windows += [(head_dim, 131072, window) for head_dim in (64, 128) for window in (128, 512, 2048)]
    for head_dim, length, window in windows:
        group = "long" if length > 32768 else "attention"
        name, heads = f"attn/window/d{head_dim}/s{length}/w{window}", 2048 // head_dim
        cases.append(AttentionCase(name, group, length, heads, head_dim, causal=True, window=window))
    for length, documents, causal in ((16384, 16, False), (16384, 16, True), (131072, 64, True)):
        group = "long" if length > 32768 else "attention"
        name = f"attn/documents/d128/s{length}/n{documents}" + ("/causal" if causal else "")
        cases.append(AttentionCase(name, group, length, 16, 128, documents=documents, causal=causal))
    return cases


def _small() -> list[Case]:
    name = "attn/small/d64/s1024/h16"
    cases: list[Case] = [AttentionCase(name, "small", 1024, 16, 64)]
    return cases + [AttentionCase(f"{name}/graph{n}", "small", 1024, 16, 64, calls_in_graph=n) for n in (1, 20)]


def _bsr() -> list[Case]:
    cases: list[Case] = []
    for block in (128, 64, 32, 16):
        for density in (0.5, 0.25, 0.1):
            cases.append(BsrCase(f"bsr/dsd/b{block}/n8192/density{density}", "dsd", block, 8192, density))
    for product in ("dds", "dss", "sdd"):
        for block in (128, 64):
            cases.append(BsrCase(f"bsr/{product}/b{block}/n8192/density0.1", product, block, 8192, 0.1))
    for block in (128, 64):
        for side in ("a", "b"):
            name = f"bsr/dsd/b{block}/n8192/density0.1/transposed_{side}"
            cases.append(BsrCase(name, "dsd", block, 8192, 0.1, transposed=side))
    cases.append(BsrCase("bsr/dss/b128/n8192/density0.25", "dss", 128, 8192, 0.25))
    cases.append(BsrCase("bsr/dsd/b128/n8192/density0.1/zipf", "dsd", 128, 8192, 0.1, rows="zipf"))
    cases.append(BsrCase("bsr/dsd/b128/n8192/arrow/cols2048", "dsd", 128, 8192, 2 / 64, cols=2048, rows="arrow"))
    # A pruned weight on a few tokens.
    for block, cols in ((128, 64), (64, 16), (64, 64), (64, 256), (32, 64), (16, 64)):
        cases.append(BsrCase(f"bsr/dsd/b{block}/n8192/density0.1/cols{cols}", "dsd", block, 8192, 0.1, cols=cols))
    # The same as a layer computes it, x @ weight.T, from one token on.
    for block, cols in ((128, 1), (64, 1), (64, 16), (64, 64), (32, 16), (16, 1)):
        name = f"bsr/dds/b{block}/n8192/density0.1/rows{cols}/transposed_b"
        cases.append(BsrCase(name, "dds", block, 8192, 0.1, cols=cols, transposed="b"))
    return cases


def _cpu() -> list[Case]:
    shape = {"heads": 8, "head_dim": 64, "dtype": "float32", "device": "cpu"}
    lists = {"q_block": 64, "kv_block": 64, "blocks": 6}
    bsr = {"dtype": "float32", "device": "cpu", "group": "cpu"}
    return [
        AttentionCase("cpu/dense/d64/s2048", "cpu", 2048, **shape),
        AttentionCase("cpu/dense/d64/s2048/causal", "cpu", 2048, causal=True, **shape),
        AttentionCase("cpu/topk/d64/s4096/b64/k6", "cpu", 4096, **shape, **lists),
        BsrCase("cpu/bsr/b64/n1024/density0.1", "dsd", 64, 1024, 0.1, **bsr),
    ]


CASES: list[Case] = [*_small(), *_dense(), *_sparse(), *_bsr(), *_cpu()]
# Measured once more when the power limit has set the clock.
UNDER_LOAD = (
    *(f"attn/dense/d{head_dim}/s16384{suffix}" for head_dim in (64, 128, 256) for suffix in ("", "/causal")),
    *(f"attn/topk/d128/s8192/{lists}{dtype}" for lists in ("b128/k32", "b64/k32") for dtype in ("", "/bfloat16")),
    *(f"attn/topk/d128/s32768/{lists}{dtype}" for lists in ("b128/k32", "b64/k64") for dtype in ("", "/bfloat16")),
    *("attn/topk/d64/s32768/b128/k32", "attn/topk/d128/s131072/b128/k32", "attn/window/d128/s131072/w2048"),
    *(f"bsr/dsd/b{block}/n8192/density{density}" for block in (128, 64) for density in (0.5, 0.25, 0.1)),
    *("bsr/dsd/b32/n8192/density0.1", "bsr/sdd/b128/n8192/density0.1"),
)
GROUPS = ("attention", "bsr_gemm", "small", "long", "cpu")


def select(patterns: list[str]) -> list[Case]:
    """The cases of groups, names and patterns such as 'attn/topk/*'; all for none. ValueError for an unknown one."""
    names = [case.name for case in CASES]
    chosen = set()
    for pattern in patterns:
        found = {case.name for case in CASES if case.group == pattern} or set(fnmatch.filter(names, pattern))
        if not found:
            raise ValueError(f"case: {unknown(pattern, [*GROUPS, *names])}")
        chosen |= found
    return [case for case in CASES if not patterns or case.name in chosen]


def unknown(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=4, cutoff=0.4)
    return f"unknown name {given!r}" + (
        f"; near matches: {', '.join(near)}" if near else f"; known: {', '.join(known)}"
    )
