"""The Python code of the documentation's pages runs as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Their blocks make one program, from top to bottom.
PAGES = {
    "index.md": [],
    "masks.md": ["torch"],
    "layers.md": ["torch", "scipy"],
    "pytorch.md": ["torch"],
    "jax.md": ["jax"],
}


@pytest.mark.parametrize("page", PAGES)
def test_code_runs(page, capsys):
    for module in PAGES[page]:
        pytest.importorskip(module)
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    program = "\n".join(blocks)
    exec(compile(program, str(DOCS / page), "exec"), {"__name__": page})
    shown = capsys.readouterr().out
    assert "print(" not in program or shown
