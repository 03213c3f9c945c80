"""What the report reads: result lines as rows, and the implementations of a case side by side."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import charts

FAMILIES = {  # in the order of the report
    "attn/dense": "Dense attention",
    "attn/topk": "Attention to chosen blocks",
    "attn/window": "Sliding-window attention",
    "attn/documents": "Attention within packed documents",
    "attn/gqa": "Grouped-query attention",
    "attn/decode": "Decoding: one query for each sequence, or four",
    "attn/small": "A small attention, where overhead counts",
    "bsr/dsd": "Block-sparse matrix times dense",
    "bsr/dds": "Dense times block-sparse matrix",
    "bsr/sdd": "Dense times dense, chosen blocks of the result",
    "bsr/dss": "Block-sparse times block-sparse matrix",
    "cpu/dense": "Dense attention on the CPU",
    "cpu/random": "Attention to random blocks on the CPU",
    "cpu/topk": "Attention to chosen blocks on the CPU",
    "cpu/bsr": "Block-sparse products on the CPU",
    "cpu/attn/dense": "Dense attention on the CPU",
    "cpu/attn/topk": "Attention to chosen blocks on the CPU",
    "cpu/bsr/dsd": "Block-sparse matrix times dense on the CPU",
}
IMPLS = {
    "sparsek/sm90": "sparsek on Hopper: one fused attention kernel, or tensor-core products of the stored blocks",
    "sparsek/sm90_dense": "sparsek on Hopper: CUTLASS's dense product, of a dense copy where an operand is sparse",
    "sparsek/wmma": "sparsek on any GPU from sm_80 on: warp-level tensor-core kernels that skip blocks",
    "sparsek/simt": "sparsek on the plain CUDA cores of any GPU, without tensor cores",
    "sparsek/cpu": "sparsek on the CPU",
    "torch/sdpa-cudnn": "PyTorch's scaled_dot_product_attention with its cuDNN backend",
    "torch/sdpa-fa2": "PyTorch's scaled_dot_product_attention with its FlashAttention backend",
    "torch/sdpa": "PyTorch's scaled_dot_product_attention, the backend that it picks",
    "torch/sdpa-unmasked": "the same without the mask: another result, so shown for scale and never compared",
    "torch/flex": "PyTorch's flex_attention, compiled",
    "torch/bsr": "PyTorch's sparse BSR tensors, by its Triton kernel",
    "torch/matmul": "PyTorch's dense product of the same matrices, zeros included",
    "fa3": "FlashAttention, the version for Hopper",
    "fa4": "FlashAttention, the version in CuTe DSL",
    "flashinfer": "FlashInfer's block-sparse attention",
    "bsa": "cuDNN Frontend's block-sparse attention, which takes bfloat16 alone",
    "cublas": "NVIDIA cuBLAS: the dense product of the same matrices, zeros included",
    "cusparse/bsr": "NVIDIA cuSPARSE, BSR format",
    "cusparse/bell": "NVIDIA cuSPARSE, Blocked-ELL format",
}
TOKENS = [  # of case names, as words
    (r"b(\d+)", r"blocks of \1x\1"),
    (r"b(\d+)x(\d+)", r"blocks of \1x\2"),
    (r"k(\d+)", r"\1 blocks kept a row"),
    (r"w(\d+)", r"window of \1"),
    (r"h(\d+)", r"\1 heads"),
    (r"gqa(\d+)x(\d+)", r"\1 query and \2 key/value heads"),
    (r"batch(\d+)", r"batch \1"),
    (r"cols(\d+)", r"\1 columns"),
    (r"rows(\d+)", r"\1 rows of a"),
    (r"t(\d+)", r"\1 threads"),
    (r"n(\d+)", r"size \1"),
    (r"graph(\d+)", r"CUDA graph of \1 calls"),
    (r"density([\d.]+)", r"density \1"),
    (r"full", "no mask"),
    (r"transposed_(\w)", r"\1 stored as its transpose"),
    (r"kv_lists", "a list for each key/value head"),
    (r"q(\d+)", r"\1 queries"),
]
DASH = "\N{EN DASH}"
# Parameters that must agree before two times can be compared.
SHAPE = (
    *("dtype", "batch", "heads", "kv_heads", "head_dim", "length", "q_len", "causal", "window", "documents"),
    *("q_block", "kv_block", "blocks", "kv_lists", "block", "density", "size", "cols", "transposed", "threads"),
)

ROOFLINE = """
## Roofline

Each point is a case. On the level line all the time goes into computing, as fast as the dense product above; on the
slanted line into moving each input and output once, as fast as the copy above. What a point lacks to the line over it
is lost to something else: to the softmax, to waiting, or to work that the mask makes unnecessary.
"""


class ResultsError(Exception):
    """A results file is not what it should be; the message names the file and the line."""


@dataclass(frozen=True)
class Row:
    case: str
    impl: str
    params: dict
    ms: float | None
    tflops: float | None
    gbps: float | None
    gpu: str
    commit: str
    date: str

    @property
    def tokens(self) -> list[str]:
        return self.case.split("/")

    @property
    def family(self) -> str:
        deep = re.match(r"cpu/(attn|bsr/(dsd|dds|dss|sdd))/", self.case)
        return "/".join(self.tokens[: 3 if deep else 2])

    @property
    def ours(self) -> bool:
        return self.impl.startswith("sparsek/")

    @property
    def out_of_memory(self) -> bool:
        return not self.ms and str(self.params.get("status", "")).upper().startswith("OOM")

    @property
    def skipped(self) -> bool:
        return not self.ms and str(self.params.get("status", "")).startswith("skipped")

    @property
    def comparable(self) -> bool:
        return not self.impl.endswith("-unmasked")

    def number(self, name: str, token: str = "") -> float | None:
        """A number from params, or from the case name's token such as d128."""
        value = self.params.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
            return value
        found = [re.fullmatch(token + r"(\d+(?:\.\d+)?)", part) for part in self.tokens[2:]] if token else []
        return next((float(match[1]) for match in found if match), None)

    @property
    def head_dim(self) -> float | None:
        return self.number("head_dim", "d")

    @property
    def length(self) -> float | None:
        return self.number("length", "s")

    @property
    def variant(self) -> str:
        """The case without its head_dim and length, in words."""
        parts = [part for part in self.tokens[2:] if not re.fullmatch(r"[ds]\d+", part)]
        parts = parts[self.family.count("/") - 1 :]
        if self.family == "attn/documents":
            parts = [re.sub(r"^n(\d+)$", r"\1 documents", part) for part in parts]
        if self.family.endswith("/dense") and not {"full", "causal"} & set(parts):
            parts.append("full")
        return ", ".join(words(part) for part in parts)

    @property
    def heads(self) -> float | None:
        batch, heads = self.number("batch"), self.number("heads", "h")
        return batch * heads if batch and heads else None

    @property
    def causal(self) -> bool:
        stated = self.params.get("causal")
        return stated if isinstance(stated, bool) else self.family == "attn/window" or "causal" in self.tokens

    @property
    def gflop(self) -> float | None:
        return self.tflops * self.ms if self.tflops and self.ms else None


def words(token: str) -> str:
    for pattern, text in TOKENS:
        match = re.fullmatch(pattern, token)
        if match:
            return re.sub(r"\b1 (blocks|threads|heads|calls|columns)", lambda m: f"1 {m[1][:-1]}", match.expand(text))
    return token


def parse(line: str) -> Row:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    for name in ("case", "impl"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise ValueError(f"{name!r} must be text, not {value.get(name)!r}")
    params = value.get("params") or {}
    if not isinstance(params, dict):
        raise ValueError(f"'params' must be an object, not {params!r}")
    numbers = {}
    for name in ("ms", "tflops", "gbps"):
        numbers[name] = x = value.get(name)
        if x is not None and (isinstance(x, bool) or not isinstance(x, (int, float)) or not 0 < x < math.inf):
            raise ValueError(f"{name!r} must be null or a positive number, not {x!r}")
    about = {name: str(value.get(name) or "unknown") for name in ("gpu", "commit", "date")}
    return Row(value["case"], value["impl"], params, **numbers, **about)


def load(folder: Path) -> list[Row]:
    """All lines; of several for one case, implementation and machine the one with the latest date."""
    latest: dict[tuple, Row] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = parse(line)
            except ValueError as error:
                raise ResultsError(f"{path}:{number}: {error}") from error
            key = (row.gpu, row.case, row.impl)
            if key not in latest or row.date >= latest[key].date:
                latest[key] = row
    return [latest[key] for key in sorted(latest)]


def amount(value: float) -> str:
    """Three significant digits, and all those before the point."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def times(ratio: float) -> str:
    if ratio >= 10:
        return amount(ratio)
    return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.2g}"


def listing(items) -> str:
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def machine(gpu: str) -> str:
    match = re.fullmatch(r"none(?: \((.*)\))?", gpu)
    return gpu if not match else f"CPU {match[1]}" if match[1] else "CPU"


def slug(gpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", machine(gpu).lower()).strip("-")


@dataclass
class Comparison:
    """One case on one machine: what each implementation did with it."""

    rows: list[Row]

    @property
    def first(self) -> Row:
        return self.rows[0]

    def fastest(self, ours: bool | None = None) -> Row | None:
        found = [row for row in self.rows if row.ms and row.comparable and ours in (None, row.ours)]
        return min(found, key=lambda row: (row.ms, row.impl), default=None)

    def without(self, ours: bool, why: Callable[[Row], bool]) -> bool:
        """Whether one side has no time, and this is why."""
        tried = [row for row in self.rows if row.ours == ours and row.comparable]
        return not any(row.ms for row in tried) and any(why(row) for row in tried)

    @property
    def ratio(self) -> float | None:
        ours, peer = self.fastest(True), self.fastest(False)
        return peer.ms / ours.ms if ours and peer else None

    @property
    def label(self) -> str:
        row = self.first
        parts = [f"head_dim {row.head_dim:g}"] if row.head_dim else []
        parts += [f"length {charts.short(row.length)}"] if row.length else []
        return ", ".join(parts + ([row.variant] if row.variant else []))

    def mismatch(self) -> list[str]:
        """Parameters in which the two that the ratio compares differ."""
        ours, peer = self.fastest(True), self.fastest(False)
        if not ours or not peer:
            return []
        both = [name for name in SHAPE if name in ours.params and name in peer.params]
        return [
            f"{name} {ours.params[name]} ({ours.impl}) and {peer.params[name]} ({peer.impl})"
            for name in both
            if ours.params[name] != peer.params[name]
        ]


def sort_key(row: Row) -> tuple:
    parts = re.split(r"(\d+(?:\.\d+)?)", row.variant)
    natural = [(0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts)]
    return (row.head_dim or 0, natural, row.length or 0)


def impl_order(rows: list[Row]) -> list[str]:
    """sparsek's first, then peers, those that are not compared last."""
    keys = {row.impl: (not row.ours, not row.comparable, row.impl) for row in rows}
    return sorted(keys, key=keys.get)


def by_family(rows: list[Row]) -> dict[tuple[str, str], list[Comparison]]:
    cases: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if not row.case.startswith("ceiling/"):
            cases[row.gpu, row.case].append(row)
    families: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    known = list(FAMILIES)
    for found in sorted(cases.values(), key=lambda found: sort_key(found[0])):
        families[found[0].gpu, found[0].family].append(Comparison(found))
    rank = {name: i for i, name in enumerate(known)}
    return dict(sorted(families.items(), key=lambda item: (item[0][0], rank.get(item[0][1], len(rank)), item[0][1])))


def title(family: str) -> str:
    return FAMILIES.get(family, f"Cases `{family}`")
