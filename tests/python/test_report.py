"""benchmarks/report.py on made-up results: what it says follows from them, and from nothing else."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the report's charts need matplotlib")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
GPU = "Some GPU"


@pytest.fixture
def report(monkeypatch):
    """The module, imported as the script's own folder would have it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "report", raising=False)
    monkeypatch.delitem(sys.modules, "charts", raising=False)
    import report

    yield report
    for name in ("report", "charts"):
        sys.modules.pop(name, None)


def row(case, impl, ms, tflops=None, *, gpu=GPU, gbps=None, date="2030-05-06", **params):
    start = {"case": case, "impl": impl, "op": "attention", "params": params, "ms": ms}
    return start | {"tflops": tflops, "gbps": gbps, "gpu": gpu, "commit": "c0ffee", "date": date}


def attention(kind, length, impl, tflops, *, head_dim=64, work=1.0, extra=None, suffix=""):
    gflop = 4e-9 * 16 * length * length * head_dim * work
    memory = {} if extra is None else {"extra_bytes": extra}
    shape = {"batch": 1, "heads": 16, "head_dim": head_dim, "length": length, "dtype": "float16"}
    case = f"attn/{kind}/d{head_dim}/s{length}{suffix}"
    return row(case, impl, gflop / tflops, tflops, **shape, **memory)


def everything():
    rows = []
    for length in (1024, 2048, 4096):
        rows.append(attention("dense", length, "sparsek/sm90", 150, extra=3 << 20))
        rows.append(attention("dense", length, "torch/sdpa-cudnn", 300, extra=0))
        share = 512 / length
        rows.append(attention("topk", length, "sparsek/sm90", 200, work=share, suffix="/b128/k4"))
        rows.append(attention("topk", length, "torch/flex", 100, work=share, suffix="/b128/k4"))
    rows.append(row("attn/topk/d64/s524288/b128/k4", "torch/flex", None, status="OOM", length=524288))
    rows.append(row("attn/topk/d64/s524288/b128/k4", "sparsek/sm90", 7.0, 77.7, length=524288))
    rows.append(row("ceiling/matmul/n8192", "cublas", 1.5, 733.0))
    rows.append(row("ceiling/copy", "torch/copy", 1.0, gbps=4111.0))
    for density in (0.5, 0.1):
        rows.append(row(f"bsr/dsd/b64/n8192/density{density}", "sparsek/simt", 4.0, 30.0, density=density))
        rows.append(row(f"bsr/dsd/b64/n8192/density{density}", "torch/bsr", 1.0, 120.0, density=density))
    return rows


def run(report, folder, rows):
    results = folder / "results"
    results.mkdir(exist_ok=True)
    (results / "made_up.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert report.main(["--results", str(results), "--out", str(folder)]) == 0
    return (folder / "REPORT.md").read_text()


def prose(text):
    """Without tables, code, links and comments."""
    text = re.sub(r"```.*?```|<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_has_the_best_in_bold_and_the_ratio_of_times(report, tmp_path):
    text = run(
        report,
        tmp_path,
        [
            row("attn/dense/d64/s1024", "sparsek/a", 2.0, 100.0),
            row("attn/dense/d64/s1024", "sparsek/b", 4.0, 50.0),
            row("attn/dense/d64/s1024", "torch/x", 3.0, 66.7),
            row("attn/dense/d64/s1024", "torch/y", 5.0, 40.0),
        ],
    )
    found = cells(text, "| 64 | 1K |")
    assert found == ["64", "1K", "no mask", "**100**", "50.0", "66.7", "40.0", "1.50"]
    assert "it is 1.50 times as fast as torch/x" in text


def test_figures_under_load_have_a_table_of_their_own(report, tmp_path):
    case = "attn/dense/d64/s1024"
    rows = [
        row(case, "sparsek/a", 2.0, 100.0, load_ms=2.5),
        row(case, "torch/x", 1.9, 105.0, load_ms=3.0),
        row(case, "torch/y", 4.0, 50.0),
    ]
    text = run(report, tmp_path, rows)
    table = text[text.index("## Under load") :]
    assert cells(table, "| case |")[1:3] == ["`sparsek/a`", "`torch/x`"]
    assert cells(table, f"| `{case}` |") == [f"`{case}`", "100, **80.0**", "105, 66.5", "1.20"]
    assert "## Under load" not in run(report, tmp_path, [row(case, "sparsek/a", 2.0, 100.0)])


def test_a_result_that_is_not_the_same_is_never_the_best_peer(report, tmp_path):
    case = "cpu/random/d64/s4096/b64/density0.1/t2"
    impls = {"sparsek/cpu": 2.0, "torch/sdpa": 6.0, "torch/sdpa-unmasked": 1.0}
    text = run(report, tmp_path, [row(case, impl, ms, 0.1, gpu="none (x86_64)") for impl, ms in impls.items()])
    assert cells(text, "| 64 | 4K |")[-1] == "3.00"
    assert "CPU x86_64" in text


def test_other_machines_are_not_compared(report, tmp_path):
    case = "attn/dense/d64/s1024"
    text = run(report, tmp_path, [row(case, "sparsek/a", 1.0, 10.0), row(case, "torch/x", 9.0, 1.0, gpu="Other GPU")])
    assert "times as fast" not in text
    assert "# Results on Other GPU" in text


def test_different_problems_under_one_name_are_marked(report, tmp_path):
    case = "attn/dense/d64/s1024"
    rows = [row(case, "sparsek/a", 1.0, 10.0, dtype="float16"), row(case, "torch/x", 2.0, 5.0, dtype="bfloat16")]
    text = run(report, tmp_path, rows)
    assert "not the same problem: dtype float16 (sparsek/a) and bfloat16 (torch/x)" in text


def test_prose_has_no_number_of_its_own(report, tmp_path):
    assert not re.search(r"\d", prose(run(report, tmp_path, [])))


def slower(impl, factor, kind):
    def change(r):
        if r["impl"] == impl and r["case"].startswith(kind) and "524288" not in r["case"]:
            return r | {"ms": r["ms"] * factor, "tflops": r["tflops"] / factor}
        return r

    return change


def changed(which, **values):
    return lambda r: r | values if r["case"] == which else r


SENTENCES = [
    (slower("torch/sdpa-cudnn", 6, "attn/dense"), "Its speed is 0.50 times the", "Its speed is 3.00 times the"),
    (slower("torch/flex", 3, "attn/topk"), "Its speed is 2.00 times the", "Its speed is 6.00 times the"),
    (
        slower("torch/bsr", 0.4, "bsr"),
        "speed is 0.25 times the fastest peer's",
        "speed is 0.10 times the fastest peer's",
    ),
    (slower("sparsek/sm90", 2, "attn/topk"), "The largest speed-up is 5.33", "The largest speed-up is 2.67"),
    (slower("torch/sdpa-cudnn", 2, "attn/dense"), "The largest speed-up is 5.33", "The largest speed-up is 10.7"),
    (changed("ceiling/matmul/n8192", tflops=800.0), "reached 733 TFLOPS", "reached 800 TFLOPS"),
    (changed("ceiling/matmul/n8192", tflops=800.0), "27.3 % of it", "25.0 % of it"),
    (changed("ceiling/copy", gbps=4222.0), "read and wrote 4,111 GB/s", "read and wrote 4,222 GB/s"),
    (changed("ceiling/copy", date="2030-09-01"), "on 2030-05-06, ", "from 2030-05-06 to 2030-09-01, "),
    (changed("ceiling/copy", commit="decade"), "at commit `c0ffee`", "at commits `c0ffee` and `decade`"),
    (
        changed("attn/dense/d64/s1024", params={"extra_bytes": 5 << 20}),
        "largest is 3.00 MiB (`attn/dense/d64/s1024`",
        "largest is 5.00 MiB (`attn/dense/d64/s1024`",
    ),
    (
        changed("attn/dense/d64/s2048", params={"batch": 1, "heads": 16, "head_dim": 64, "length": 8192}),
        "In 0 of 3 cases the sparse",
        "For 1 of them dense attention was not measured",
    ),
    (
        changed("attn/topk/d64/s524288/b128/k4", params={"length": 262144, "status": "OOM"}),
        "ran out of memory in 1 case (head_dim 64, length 512K, ",
        "ran out of memory in 1 case (head_dim 64, length 256K, ",
    ),
]


@pytest.mark.parametrize(("change", "before", "after"), SENTENCES)
def test_numbers_in_prose_follow_the_data(report, tmp_path, change, before, after):
    first = run(report, tmp_path, everything())
    second = run(report, tmp_path, [change(r) for r in everything()])
    assert before in first
    assert after not in first
    assert after in second


def test_counts_follow_the_data(report, tmp_path):
    def rows(n):
        lengths = [1024 << i for i in range(n)]
        ours = [attention("dense", length, "sparsek/a", 100) for length in lengths]
        return ours + [attention("dense", length, "torch/x", 50 if i else 400) for i, length in enumerate(lengths)]

    assert "faster than every peer measured in 2 of 3 cases, slower than the fastest in 1." in run(
        report, tmp_path, rows(3)
    )
    text = run(report, tmp_path, rows(5))
    assert "faster than every peer measured in 4 of 5 cases, slower than the fastest in 1." in text
    assert "5 cases, 10 measurements" in text


def test_out_of_memory(report, tmp_path):
    text = run(report, tmp_path, everything())
    found = cells(text, "| 64 | 512K |")
    assert found[3:] == ["**77.7**", "out of memory", "\N{EN DASH}"]
    assert "Every peer tried ran out of memory in 1 case (head_dim 64, length 512K" in text
    chart = (tmp_path / "charts" / "some-gpu-attn-topk.svg").read_text()
    assert "out of memory" in chart


def test_skipped_is_not_out_of_memory(report, tmp_path):
    case = "attn/topk/d64/s8192/b128/k4"
    rows = [row(case, "sparsek/a", None, status="skipped: would take about 3 s"), row(case, "torch/x", 1.0, 9.0)]
    text = run(report, tmp_path, rows)
    assert "sparsek was not run in 1 case" in text
    assert "out of memory" not in text
    assert "| skipped |" in text


def test_speed_up_is_for_one_head_over_the_fastest_dense(report, tmp_path):
    rows = [
        row("attn/dense/d64/s4096", "torch/x", 8.0, 10.0, batch=2, heads=16),
        row("attn/dense/d64/s4096", "torch/slow", 80.0, 1.0, batch=2, heads=16),
        row("attn/topk/d64/s4096/b128/k4", "sparsek/a", 1.0, 10.0, batch=1, heads=16),
    ]
    text = run(report, tmp_path, rows)
    assert "The largest speed-up is 4.00 (head_dim 64, length 4K, blocks of 128x128, 4 blocks kept a row)" in text
    assert "estimated" not in text


def test_speed_up_where_dense_was_not_measured_is_marked(report, tmp_path):
    rows = [
        row("attn/dense/d64/s4096/causal", "torch/x", 8.0, 100.0, batch=1, heads=16),
        row("attn/window/d64/s8192/w256", "sparsek/a", 1.0, 10.0, batch=1, heads=16),
    ]
    dense_ms = 4 * 64 * (8192 * 8193 / 2) * 16 / 100e12 * 1e3
    text = run(report, tmp_path, rows)
    assert cells(text, "| 64 | 8K | window of 256 | `sparsek/a` | `torch/x` at 4K |")[-1] == f"~ {dense_ms:.2f}"
    assert "the dense time estimated" in text


def test_all_charts_and_the_same_bytes_again(report, tmp_path):
    first = run(report, tmp_path, everything())
    charts = {path.name: path.read_bytes() for path in (tmp_path / "charts").iterdir()}
    kinds = ("attn-dense-memory", "attn-dense", "attn-topk", "bsr-dsd", "roofline", "speed-up")
    assert sorted(charts) == [f"some-gpu-{kind}.svg" for kind in kinds]
    assert all(f"(charts/{name})" in first for name in charts)
    assert all(b"<dc:date>" not in data for data in charts.values())
    assert run(report, tmp_path, everything()) == first
    assert {path.name: path.read_bytes() for path in (tmp_path / "charts").iterdir()} == charts


def test_the_committed_report_is_of_the_committed_results(report, tmp_path):
    if not (BENCHMARKS / "results").exists():
        pytest.skip("benchmarks/results are not in a source distribution")
    assert report.main(["--out", str(tmp_path)]) == 0
    assert (tmp_path / "REPORT.md").read_text() == (BENCHMARKS / "REPORT.md").read_text()
    assert {path.name for path in (tmp_path / "charts").iterdir()} == {
        path.name for path in (BENCHMARKS / "charts").iterdir()
    }


def test_charts_of_an_earlier_report_go_and_other_files_stay(report, tmp_path):
    run(report, tmp_path, everything())
    (tmp_path / "charts" / "mine.svg").write_text("<svg/>")
    text = run(report, tmp_path, everything()[:2])
    assert [path.name for path in (tmp_path / "charts").iterdir()] == ["mine.svg"]
    assert "![" not in text


def test_no_results(report, tmp_path):
    text = run(report, tmp_path, [])
    assert "There are no results yet." in text
    assert "How to rerun" in text
    assert report.main(["--results", str(tmp_path / "missing"), "--out", str(tmp_path)]) == 0


def test_latest_of_two_lines_counts(report, tmp_path):
    old = row("attn/dense/d64/s1024", "sparsek/a", 9.0, 1.0, date="2030-01-01")
    new = row("attn/dense/d64/s1024", "sparsek/a", 1.0, 9.0, date="2030-01-02")
    assert cells(run(report, tmp_path, [new, old]), "| 64 |")[3] == "**9.00**"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"case": "a/b"', "delimiter"),
        ("[1]", "not a JSON object"),
        ('{"case": "a/b", "ms": 1}', "'impl' must be text"),
        ('{"case": "a/b", "impl": "x", "ms": "fast"}', "'ms' must be null or a positive number, not 'fast'"),
        ('{"case": "a/b", "impl": "x", "ms": NaN}', "'ms' must be null or a positive number"),
        ('{"case": "a/b", "impl": "x", "ms": 1, "params": [1]}', "'params' must be an object"),
    ],
)
def test_malformed_line_is_named(report, tmp_path, capsys, line, reason):
    results = tmp_path / "results"
    results.mkdir()
    (results / "bad.jsonl").write_text(json.dumps(row("a/b", "x", 1.0)) + "\n\n" + line + "\n")
    assert report.main(["--results", str(results), "--out", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert f"{results / 'bad.jsonl'}:3: " in message
    assert reason in message
    assert not (tmp_path / "REPORT.md").exists()


@pytest.mark.parametrize("case", ["x", "new/thing", "attn/new/d64/s12/zzz9", "attn/dense", "cpu/attn/topk/d8/s9/b2/k1"])
def test_unknown_cases_are_shown(report, tmp_path, case):
    text = run(report, tmp_path, [row(case, "sparsek/new", 1.0), row(case, "someone/else", 2.0, status=3)])
    assert "2.00 times as fast as someone/else" in text
