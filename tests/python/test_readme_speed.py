"""The README's table of speeds says what the committed results say."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
report_data = pytest.importorskip("report_data", reason="the report's modules need matplotlib")

RESULTS = report_data.load(ROOT / "benchmarks" / "results")
if not RESULTS:
    pytest.skip("benchmarks/results are not in a source distribution", allow_module_level=True)
FAMILIES = report_data.by_family([row for row in RESULTS if "H200" in row.gpu])
README = (ROOT / "README.md").read_text(encoding="utf-8")

WIDE = r"bsr/dsd/b(32|64|128)/n8192/(density[\d.]+|density0\.1/zipf|arrow/cols2048)"
FEW = r"bsr/(dsd|dds)/b\d+/n8192/density0\.1/(cols(16|64|256)|rows(16|64)/transposed_b)"
# What the table's first column says: the cases that are meant, and the peers.
ROWS = {
    "dense attention": (r"attn/dense/.*", r".*"),
    "masked attention": (r"attn/(topk|window|documents)/.*", r".*"),
    "decoding, one query and four": (r"attn/decode/(?!.*/b64/).*", r".*"),
    "products, blocks of 32 and more": (WIDE, r"torch/bsr|cusparse/.*"),
    "the same with 256 columns or fewer": (FEW, r"cusparse/.*"),
    "a layer of one token": (r"bsr/dds/.*/rows1/transposed_b", r"cublas"),
}
LISTS = "the same with block lists"


def ratios(case: str, peers: str) -> list[float]:
    """Of each case the fastest peer's time over sparsek's, ascending; both are regular expressions."""
    chosen = [
        report_data.Comparison([row for row in c.rows if row.ours or re.fullmatch(peers, row.impl)])
        for c in itertools.chain(*FAMILIES.values())
        if re.fullmatch(case, c.first.case)
    ]
    found = sorted(c.ratio for c in chosen if c.ratio is not None)
    assert found, f"no results of {case} beside {peers}"
    return found


def said(what: str) -> str:
    """The last column."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {what} |"))
    return line.strip("|").split("|")[-1].strip()


def rounded(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize("what", ROWS)
def test_slowest_and_fastest(what):
    found, text = ratios(*ROWS[what]), said(what)
    low, high = re.match(r"([\d.]+) to ([\d.]+)", text).groups()
    assert (low, high) == (rounded(found[0], low), rounded(found[-1], high))
    if count := re.search(r"slower in (\d+) of (\d+) cases", text):
        assert [int(number) for number in count.groups()] == [sum(ratio < 1 for ratio in found), len(found)]


def test_decoding_with_lists():
    for_heads, for_kv_heads = re.fullmatch(r"([\d.]+), with a list for each k/v head ([\d.]+)", said(LISTS)).groups()
    for ratio in ratios(r"attn/decode/(?!.*/kv_lists).*/b64/.*", r".*"):
        assert rounded(ratio, for_heads) == for_heads
    for ratio in ratios(r"attn/decode/.*/kv_lists.*", r".*"):
        assert rounded(ratio, for_kv_heads) == for_kv_heads


def test_every_row_is_checked():
    table = README[README.index("| | peers | times their speed |") :].split("\n\n")[0]
    assert re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) == [*list(ROWS)[:3], LISTS, *list(ROWS)[3:]]
