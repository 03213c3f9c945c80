"""`python -m sparsek`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sparsek
import sparsek.__main__

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "sparsek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)


def test_info_lists_every_backend_with_its_reason():
    done = run("info")
    assert done.returncode == 0, done.stderr
    for row in sparsek.backends():
        (line,) = (x for x in done.stdout.splitlines() if x.split()[:2] == [row.operation, row.name])
        assert line.endswith("available" if row.available else row.reason)


def test_info_says_what_serves_each_gpu(monkeypatch, capsys):
    gpus = [(0, "NVIDIA L4", 89, "wmma", "wmma"), (1, "Tesla T4", 75, "", "")]
    monkeypatch.setattr(sparsek.__main__._core, "gpus", lambda: gpus)
    sparsek.__main__.info()
    printed = capsys.readouterr().out
    assert "cuda:0  NVIDIA L4, sm_89; served by: attention wmma, bsr_gemm wmma" in printed
    assert "cuda:1  Tesla T4, sm_75; served by: attention no backend, bsr_gemm no backend" in printed


def test_unknown_command():
    done = run("fly")
    assert done.returncode == 2
    assert "invalid choice: 'fly'" in done.stderr


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_benchmarks_need_a_checkout(command, tmp_path):
    done = run(command, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{command}: expected to be called inside a checkout of sparsek" in done.stdout


def test_bench_lists_its_cases():
    done = run("bench", "--list", cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr
    assert "attn/dense/d128/s16384/causal" in done.stdout
