"""Shapes without lists that get a kernel or an order of tiles of their own.

That they do, tests/cpp/attention/test_sm90_plan.cpp says.
"""

from __future__ import annotations

import pytest
import torch
from attention_cases import Case
from test_attention import run_case

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("band", ["all", "causal", "window"])
@pytest.mark.parametrize(("q_len", "batch"), [(250, 6), (350, 3)])
@pytest.mark.parametrize("head_dims", [(64, 64), (96, 96), (128, 128), (192, 128)])
def test_wide_tiles(head_dims, q_len, batch, band, rng):
    """With so many heads that tiles of 192 and 256 queries fill the chip; smaller cases get narrower ones."""
    case = Case(
        "wide tiles",
        q_len,
        460,
        batch=batch,
        heads=22,
        kv_heads=11,
        head_dim=head_dims[0],
        value_dim=head_dims[1],
        causal=band == "causal",
        window=(150, 40) if band == "window" else None,
    )
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("window", [(0, 0), (70, 0), (300, 20), (500, None)])
@pytest.mark.parametrize(("q_len", "kv_len", "batch"), [(250, 250, 6), (350, 900, 3), (700, 500, 2)])
@pytest.mark.parametrize("head_dims", [(64, 64), (96, 96), (128, 128), (192, 128)])
def test_windows_that_begin_within_tiles(head_dims, q_len, kv_len, batch, window, rng):
    """The last warpgroups of a tile see nothing of its first keys; of 700 queries some see no key at all."""
    case = Case("windows", q_len, kv_len, batch, 22, 11, head_dim=head_dims[0], value_dim=head_dims[1], window=window)
    run_case(case, "sm90", torch.float16 if rng.random() < 0.5 else torch.bfloat16, rng)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("head_dims", [(64, 64), (40, 24)])
@pytest.mark.parametrize(
    ("q_len", "kv_len", "heads", "options"),
    [
        (1000, 1000, 12, {}),
        (300, 1100, 32, {}),
        (900, 800, 12, {"causal": True}),
        (1000, 1000, 12, {"window": (700, 60)}),
    ],
)
def test_two_teams_for_a_tile(q_len, kv_len, heads, options, head_dims, dtype, rng):
    head_dim, value_dim = head_dims
    case = Case("two teams", q_len, kv_len, 1, heads, heads // 4, head_dim=head_dim, value_dim=value_dim, **options)
    run_case(case, "sm90", dtype, rng)


@pytest.mark.parametrize(("heads", "kv_heads"), [(24, 8), (40, 40)])
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_two_rounds_of_unequal_tiles(head_dim, heads, kv_heads, rng):
    q_len = 1300 if heads == 24 else 1000 if head_dim == 64 else 640
    case = Case("two rounds", q_len, q_len + 200, 1, heads, kv_heads, head_dim=head_dim, causal=True)
    run_case(case, "sm90", torch.float16, rng)


@pytest.mark.parametrize(("batch", "heads", "kv_heads"), [(1, 70, 70), (5, 24, 12)])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_sections_of_unequal_tiles(head_dim, batch, heads, kv_heads, rng):
    """More heads than are visited together, whose number their sections do not divide."""
    case = Case("sections", 900, 900, batch, heads, kv_heads, head_dim=head_dim, causal=True)
    run_case(case, "sm90", torch.bfloat16, rng)
