"""The benchmark suite's counts and behaviour, without a GPU."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import allowed_pairs

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import inputs
import measure
import pair
import peer
import peers
import peers_attention
import results
import run
import suite
import tune
from timing import Ceilings, Timer

import sparsek

ATTENTION = [case for case in suite.CASES if case.op == "attention"]
BSR = [case for case in suite.CASES if case.op == "bsr_gemm"]


def small_attention(case):
    """The case at a length where pairs can be counted one by one."""
    length = min(case.length, 1024)
    blocks = case.blocks and min(case.blocks, length // case.kv_block)
    window = case.window and min(case.window, length // 4)
    documents = case.documents and min(case.documents, 8)
    shape = {"length": length, "blocks": blocks, "window": window, "documents": documents}
    return replace(case, device="cpu", dtype="float32", calls_in_graph=0, batch=1, heads=2, kv_heads=1, **shape)


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.name)
def test_attention_flops_are_those_of_the_attended_pairs(case):
    case = small_attention(case)
    made = inputs.make(case, seed=1)
    mask = None if made.mask is None else made.mask.to_dense()
    options = peer.attention_options(case)
    allowed = allowed_pairs(case.queries, case.length, mask=mask, **options)
    pairs = allowed.expand(case.batch, case.heads, -1, -1).sum().item()
    # q k^T: a product and a sum for each pair and element of head_dim; p v likewise.
    assert case.flops == pairs * case.head_dim * 2 * 2


@pytest.mark.parametrize("case", BSR, ids=lambda case: case.name)
def test_bsr_flops_are_those_of_the_stored_blocks(case):
    blocks = 8
    density = max(case.density, 0.25)
    cols = case.cols and 32
    case = replace(case, size=blocks * case.block, density=density, cols=cols, device="cpu", dtype="float32")
    made = inputs.make(case, seed=1)
    a, b = (stored(operand, case.block) for operand in made.sets[0])
    out = torch.ones(a.shape[0], b.shape[1]) if made.pattern is None else stored(made.pattern, case.block)
    # Entry (i, k) of a times (k, j) of b counts where both are stored, and out's (i, j) is wanted.
    assert case.flops == 2 * ((a.double() @ b.double()) * out.double()).sum().item()


def stored(operand, block):
    """1 where a matrix has an entry, 0 in blocks that are not there."""
    if isinstance(operand, torch.Tensor):
        return torch.ones_like(operand)
    return operand.with_values(torch.ones_like(operand.values)).to_dense()


@pytest.mark.parametrize("side", ["a", "b"])
def test_transposed_operands_are_the_same_matrices(side):
    case = next(case for case in BSR if case.transposed == side)
    case = replace(case, size=8 * case.block, density=0.25, cols=32, device="cpu", dtype="float32")
    plain, transposed = (inputs.make(replace(case, transposed=t), seed=1).sets[0] for t in (None, side))
    for one, other in zip(plain, transposed, strict=True):
        dense = [x if isinstance(x, torch.Tensor) else x.to_dense() for x in (one, other)]
        assert torch.equal(*dense)
    if side == "b":
        assert transposed[1].stride() == (1, case.size)
    else:
        assert transposed[0].values.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("q_len", [1, 5, 9])
@pytest.mark.parametrize("kv_len", [1, 6, 9])
@pytest.mark.parametrize("left", [None, 0, 2, 20])
@pytest.mark.parametrize("right", [None, 0, 3, 20])
def test_band_pairs(q_len, kv_len, left, right):
    expected = allowed_pairs(q_len, kv_len, window=(left, right)).sum().item()
    assert suite.band_pairs(q_len, kv_len, left, right) == expected


def test_bytes_are_those_of_the_arrays():
    case = small_attention(ATTENTION[0])
    q, k, v = inputs.make(case).sets[0]
    assert case.bytes == 2 * q.nbytes + k.nbytes + v.nbytes


def test_bytes_are_those_of_listed_keys():
    case = next(case for case in ATTENTION if case.queries == 1 and case.blocks)
    kv_heads = case.num_kv_heads
    listed = 2 * kv_heads * (case.heads // kv_heads) * case.blocks * case.kv_block * case.head_dim * 2
    assert case.bytes == listed + 2 * case.heads * case.head_dim * 2
    assert replace(case, length=1024, blocks=16).bytes == replace(case, length=1024, blocks=None).bytes


def test_names_are_stable_and_unique():
    names = [case.name for case in suite.CASES]
    assert len(names) == len(set(names))
    for name in (
        "attn/dense/d128/s16384/causal",
        "attn/topk/d64/s32768/b128/k32",
        "attn/window/d128/s131072/w2048",
        "attn/small/d64/s1024/h16/graph20",
        "bsr/dsd/b128/n8192/density0.1",
    ):
        assert name in names


def test_what_is_measured_under_load_are_cases():
    names = {case.name: case for case in suite.CASES}
    assert len(set(suite.UNDER_LOAD)) == len(suite.UNDER_LOAD)
    assert all(names[name].device == "cuda" and not names[name].calls_in_graph for name in suite.UNDER_LOAD)


@pytest.mark.parametrize("case", [case for case in ATTENTION if case.blocks], ids=lambda case: case.name)
def test_no_case_asks_for_more_blocks_than_there_are(case):
    assert case.length % case.kv_block == 0
    assert case.queries % case.q_block == 0 or case.queries in (1, 4)
    assert case.blocks <= case.length // case.kv_block


def test_documents_fill_the_length():
    for case in ATTENTION:
        if case.documents:
            assert sum(case.document_lengths) == case.length
            assert min(case.document_lengths) > 0


def test_cpu_cases_run_and_are_saved(tmp_path, capsys):
    file = tmp_path / "out.jsonl"
    results.save(file, [results.record("other", "impl", "attention", {}, 1.0, None, "gpu")])
    assert run.main(["cpu/topk/d64/s4096/b64/k6", "cpu/bsr/*", "--out", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "sparsek/cpu" in printed
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["case"] for row in rows} == {"other", "cpu/topk/d64/s4096/b64/k6", "cpu/bsr/b64/n1024/density0.1"}
    expected = {"case", "impl", "op", "params", "ms", "tflops", "gbps", "gpu", "commit", "date"}
    assert all(set(row) == expected and row["ms"] > 0 for row in rows)
    assert {"torch/sdpa", "torch/matmul"} <= {row["impl"] for row in rows}


def test_without_a_gpu_the_cpu_cases_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = tmp_path / "out.jsonl"
    assert run.main(["small", "cpu/bsr/*", "--peers", "torch/flex", "--out", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "no GPU: 3 GPU cases are left out, 1 CPU cases run" in printed
    assert "peer torch/flex: absent, no GPU" in printed
    assert [row["impl"] for row in results.load(file)] == ["sparsek/cpu"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attn/dense/d128/s16384/casual"], "attn/dense/d128/s16384/causal"),
        (["atention"], "attention"),
        (["small", "--peers", "torch/flexx"], "torch/flex"),
    ],
)
def test_unknown_names_list_the_near_ones(arguments, message, capsys):
    with pytest.raises(SystemExit):
        run.main(arguments)
    error = capsys.readouterr().err
    assert re.search(f"unknown name.*near matches.*{re.escape(message)}", error, re.DOTALL)


class FakePeer(peer.Peer):
    name = "fake"

    def __init__(self, error=None, result=None):
        self.error, self.result = error, result

    def declines(self, case):
        return None

    def prepare(self, case, inputs):
        def call(i):
            if self.error:
                raise self.error
            return self.result

        return call


CPU_CASE = replace(next(case for case in suite.CASES if case.name == "cpu/dense/d64/s2048"), length=64)


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (FakePeer(torch.OutOfMemoryError("CUDA out of memory")), "OOM"),
        (FakePeer(RuntimeError("broken")), "failed: RuntimeError: broken"),
        (FakePeer(result=torch.zeros(1, 64, 8, 64)), "wrong: differs from sparsek"),
        (FakePeer(result=torch.full((1, 64, 8, 64), float("nan"))), "wrong: values that are not finite"),
    ],
)
def test_a_peer_that_fails_is_a_row_and_the_run_goes_on(failing, status):
    own = [row for row in peer.own() if row.backend == "cpu"]
    rows = list(measure.run_case(CPU_CASE, own, [failing, peers_attention.SdpaCpu()], Timer("cpu"), 0.5))
    assert [row.impl for row in rows] == ["sparsek/cpu", "fake", "torch/sdpa"]
    assert rows[1].ms is None
    assert rows[1].status.startswith(status)
    assert rows[0].ms
    assert rows[2].ms
    assert len(run.table_lines(rows, Ceilings(None, None))) == 3


def test_an_interrupted_run_keeps_what_is_finished(tmp_path, monkeypatch, capsys):
    file = tmp_path / "out.jsonl"
    old = results.record("cpu/dense/d64/s2048", "torch/sdpa", "attention", {}, 7.0, None, "gpu")
    results.save(file, [old])
    monkeypatch.setattr(peers, "PEERS", [FakePeer(KeyboardInterrupt())])
    assert run.main(["cpu/dense/d64/s2048", "--out", str(file)]) == 130
    assert {row["impl"] for row in results.load(file)} == {"sparsek/cpu", "torch/sdpa"}
    assert "interrupted" in capsys.readouterr().out


def test_slow_backends_are_skipped():
    slow = max((case for case in suite.CASES if case.op == "bsr_gemm"), key=lambda case: case.flops)
    assert slow.estimate("simt") > 0.05
    assert slow.estimate("sm90") == 0
    assert all(case.estimate("sm90") == 0 for case in suite.CASES if case.op == "attention")


def test_commit_from_the_environment(monkeypatch):
    results.commit.cache_clear()
    monkeypatch.setenv("SPARSEK_COMMIT", "abc")
    assert results.commit() == "abc"
    results.commit.cache_clear()


def test_tune_ranks_what_is_compiled(capsys):
    assert tune.main(["bsr_gemm", "--case", "cpu/bsr/b64/n1024/density0.1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"1 +cpu .* ms .* TFLOPS\nselected by default: cpu", printed)
    with pytest.raises(SystemExit):
        tune.main(["attention", "--case", "cpu/dense/d64/s2047"])
    assert "cpu/dense/d64/s2048" in capsys.readouterr().err


def test_pair_times_two_builds(tmp_path, capsys):
    folder, out = Path(sparsek.__file__).parents[1], tmp_path / "new" / "pair.jsonl"
    case = "cpu/bsr/b64/n1024/density0.1"
    assert pair.main([f"one={folder}", f"two={folder}", case, "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["case"], row["commit"]) for row in rows] == [(case, "one"), (case, "two")]
    assert all(row["ms"] > 0 and row["tflops"] > 0 for row in rows)
    ratio = float(re.search(rf"{re.escape(case)} .* ([\d.]+)$", capsys.readouterr().out, re.MULTILINE)[1])
    assert ratio == pytest.approx(rows[0]["ms"] / rows[1]["ms"], abs=1e-3)


@pytest.mark.parametrize("build", ["one", "one=/nowhere"])
def test_pair_wants_a_folder_with_the_package(build, capsys):
    with pytest.raises(SystemExit):
        pair.main([build, build])
    assert f"expected NAME=FOLDER with a package sparsek in FOLDER, got '{build}'" in capsys.readouterr().err
