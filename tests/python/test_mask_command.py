"""`python -m sparsek mask`: what it draws, against formulas on dense masks, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from sparsek import _mask_gallery as gallery

SIZES = gallery.Sizes(
    q_len=50, kv_len=70, q_block=16, kv_block=8, left=9, right=3, stride=6, global_tokens=5, prefix=12
)


def run(*arguments, **environment):
    command = [sys.executable, "-m", "sparsek", "mask", *arguments]
    env = os.environ | {"PYTHONIOENCODING": "utf-8"} | environment
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300, env=env)


def dense(name):
    p, k = np.arange(50)[:, None] + 20, np.arange(70)[None, :]
    return {
        "full": (p >= 0) & (k >= 0),
        "causal": k <= p,
        "window": (k >= p - 9) & (k <= p + 3),
        "dilated": abs(p - k) % 6 == 0,
        "strided": (k <= p) & ((p - k < 6) | (k % 6 == 5)),
        "global": (p < 5) | (k < 5),
        "prefix": (k <= p) | (k < 12),
    }[name]


@pytest.mark.parametrize("name", ["full", "causal", "window", "dilated", "strided", "global", "prefix"])
def test_formulas(name):
    assert np.array_equal(gallery.make(name, SIZES).to_dense()[0, 0], dense(name))


def test_expressions():
    got = gallery.make("causal&window | global & dilated", SIZES).to_dense()[0, 0]
    assert np.array_equal(got, (dense("causal") & dense("window")) | (dense("global") & dense("dilated")))


def test_documents_and_random_blocks():
    mask = gallery.make("documents", gallery.Sizes(q_len=12, kv_len=12, q_block=4, kv_block=4, documents=(5, 7)))
    document = np.repeat([0, 1], [5, 7])
    assert np.array_equal(mask.to_dense()[0, 0], document[:, None] == document)
    mask = gallery.make("random", gallery.Sizes(density=0.3, seed=4))
    assert 0.2 < mask.density < 0.4
    assert mask.bitmaps is None
    assert gallery.make("random", gallery.Sizes(density=0)).density == 0


def test_drawing():
    done = run("causal", "window", "--q-len", "64", "--block", "16", "--window", "16", "0", "--width", "8")
    assert done.returncode == 0, done.stderr
    first, second, legend = done.stdout.strip().split("\n\n")
    assert first.splitlines()[1:] == ["▒▒······", "██▒▒····", "████▒▒··", "██████▒▒"]
    assert first.startswith("causal: BlockMask(q 64 x kv 64, blocks 16x16")
    assert second.splitlines()[1:] == ["▒▒······", "▒▒▒▒····", "··▒▒▒▒··", "····▒▒▒▒"]
    assert "none" in legend


def test_a_terminal_without_unicode():
    done = run("causal", "--q-len", "64", "--block", "32", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:3] == ["::  ", "##::"]


def test_every_name_is_drawn_and_described():
    done = run(*gallery.MASKS, "--q-len", "128")
    assert done.returncode == 0, done.stderr
    shown = run("--help").stdout
    for name in gallery.MASKS:
        assert f"\n{name}: BlockMask(q 128 x kv 128" in "\n" + done.stdout
        assert f"\n  {name} " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "mask: error: mask: expected one of full, causal, window"),
        (["causal&"], "mask: error: mask: expected one of full, causal, window"),
        (["causal", "--q-len", "-1"], "mask: error: q_len: expected at least 0, got -1"),
        (["causal", "--block", "0"], "mask: error: q_block: expected at least 1, got 0"),
        (["causal", "--block", "1", "2", "3"], "mask: error: --block: expected one or two numbers, got 3"),
        (["dilated", "--stride", "0"], "mask: error: --stride: expected at least 1, got 0"),
        (["random", "--density", "2"], "mask: error: --density: expected 0 to 1, got 2.0"),
        (["documents", "--documents", "5", "6", "--q-len", "12"], "got 11 tokens for q_len 12 and kv_len 12"),
        (["causal", "--width", "1"], "mask: error: width: expected at least 2 characters, got 1"),
    ],
)
def test_bad_input_gives_one_line(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_window_that_is_no_number():
    done = run("window", "--window", "x")
    assert done.returncode == 2
    assert "argument --window: expected a number of tokens or \"none\", got 'x'" in done.stderr
