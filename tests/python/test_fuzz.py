"""fuzz.py runs, and tells a wrong result."""

from __future__ import annotations

import fuzz
import pytest

pytestmark = pytest.mark.skipif(fuzz.GPU, reason="small problems, for the CPU")


@pytest.mark.parametrize("kind", fuzz.PROBLEMS)
def test_problems(kind, capsys):
    fuzz.main([kind, "--problems", "25"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "25 problems, none wrong"
    assert len(lines) == 26


def test_a_seed_gives_the_same_problem(capsys):
    outputs = []
    for _ in range(2):
        fuzz.main(["--seed", "5", "--only", "4"])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("seed 5, problem 4:")


def test_a_wrong_result_is_told(monkeypatch):
    product = fuzz.bsr_gemm
    monkeypatch.setattr(fuzz, "bsr_gemm", lambda *args, out, **options: product(*args, out=out, **options).add_(1))
    with pytest.raises(AssertionError, match="output: error"):
        fuzz.main(["views", "--problems", "20", "--seed", "1"])


def test_writing_beside_the_result_is_told(monkeypatch):
    attention = fuzz.attention

    def attention_and_more(*args, out, **options):
        attention(*args, out=out, **options)
        last = sum((side - 1) * stride for side, stride in zip(out.shape, out.stride(), strict=True))
        out.as_strided((1,), (1,), out.storage_offset() + last + 1).fill_(0)

    monkeypatch.setattr(fuzz, "attention", attention_and_more)
    with pytest.raises(AssertionError, match="written beside the result"):
        fuzz.main(["views", "--problems", "20", "--seed", "1"])
