"""Reads and writes benchmarks/results/*.jsonl: one JSON object a line, one line for each case and impl."""

from __future__ import annotations

import datetime
import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


@functools.cache
def commit() -> str:
    """The commit that is measured, marked when the tree differs from it; SPARSEK_COMMIT where there is no git."""
    if os.environ.get("SPARSEK_COMMIT"):
        return os.environ["SPARSEK_COMMIT"]
    root = Path(__file__).resolve().parents[1]
    try:
        run = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True)
    except FileNotFoundError:
        return "unknown"
    return run.stdout.decode().strip() or "unknown"


def record(
    case: str,
    impl: str,
    op: str,
    params: dict[str, Any],
    ms: float | None,
    tflops: float | None,
    gpu: str,
    gbps: float | None = None,
) -> dict:
    return {
        "case": case,
        "impl": impl,
        "op": op,
        "params": params,
        "ms": None if ms is None else round(ms, 5),
        "tflops": None if tflops is None else round(tflops, 4),
        "gbps": None if gbps is None else round(gbps, 2),
        "gpu": gpu,
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }


def load(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def save(path: Path, rows: list[dict], *, whole_cases: bool = True) -> None:
    """Replaces the lines of the cases in `rows` and keeps the others; written at once, so that none is ever lost.

    whole_cases  False after an interruption: replaces only the lines of the same case and impl
    """

    def key(row: dict) -> Any:
        return row["case"] if whole_cases else (row["case"], row["impl"])

    replaced = {key(row) for row in rows}
    kept = [row for row in load(path) if key(row) not in replaced]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in sorted(kept + rows, key=lambda row: (row["case"], row["impl"]))]
    temporary = path.with_suffix(".part")
    temporary.write_text("".join(lines))
    temporary.replace(path)
