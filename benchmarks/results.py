"""Reads and writes benchmarks/results/*.jsonl: one JSON object a line, one line for each case and impl."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


def commit() -> str:
    """The commit that is measured, marked when the tree differs from it."""
    root = Path(__file__).resolve().parents[1]
    run = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True)
    return run.stdout.decode().strip() or "unknown"


def record(case: str, impl: str, op: str, params: dict[str, Any], ms: float, tflops: float | None, gpu: str) -> dict:
    return {
        "case": case,
        "impl": impl,
        "op": op,
        "params": params,
        "ms": round(ms, 5),
        "tflops": None if tflops is None else round(tflops, 4),
        "gbps": None,
        "gpu": gpu,
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }


def save(name: str, rows: list[dict]) -> Path:
    """Replaces the lines of the cases that were run and keeps the others."""
    path = FOLDER / f"{name}.jsonl"
    cases = {row["case"] for row in rows}
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = [row for row in kept if row["case"] not in cases]
    FOLDER.mkdir(exist_ok=True)
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in sorted(kept + rows, key=lambda r: (r["case"], r["impl"])))
    )
    return path


def show(rows: list[dict]) -> None:
    print(f"{'case':<36} {'impl':<22} {'ms':>10} {'TFLOPS':>8}")
    for row in rows:
        tflops = "" if row["tflops"] is None else f"{row['tflops']:.2f}"
        print(f"{row['case']:<36} {row['impl']:<22} {row['ms']:>10.4f} {tflops:>8}")
