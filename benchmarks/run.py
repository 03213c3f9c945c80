"""Runs the benchmark suite: `python benchmarks/run.py [attention|bsr_gemm|small|long|cpu|CASE ...]`.

A CASE is a name or a pattern such as 'attn/topk/*'; without any the whole suite runs. Prints a table as cases finish
and keeps what was measured in benchmarks/results; Ctrl-C keeps what is finished.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import measure
import peer
import peers
import results
import suite
import torch
from measure import Row
from timing import Ceilings, Timer

import sparsek

HEADER = f"{'case':<41} {'impl':<22} {'median ms':>10} {'TFLOPS':>8} {'GB/s':>6} {'vs peer':>8} {'ceiling':>8}"


class Progress:
    """One line on a terminal that says how far the run is; nothing where standard error is none."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._shown = total, 0, sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._shown:
            filled = 24 * self._done // max(1, self._total)
            bar = f"[{'#' * filled}{'.' * (24 - filled)}] {self._done}/{self._total} {text}"
            print(f"\r\033[K{bar[:118]}", end="", file=sys.stderr, flush=True)

    def advance(self) -> None:
        self._done += 1
        self.clear()

    def clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def table_lines(rows: list[Row], ceilings: Ceilings) -> list[str]:
    """Lines of one case; "vs peer" is the best peer's time over this one's: above 1 is faster."""
    peer_times = [row.ms for row in rows if row.ms and not row.impl.startswith("sparsek/")]
    lines = []
    for row in rows:
        start = f"{row.case.name:<41} {row.impl:<22}"
        if row.ms is None:
            lines.append(f"{start} {row.status}")
            continue
        gbps, share = row.gbps(ceilings), row.share(ceilings)
        ratio = f"{min(peer_times) / row.ms:.2f}x" if peer_times else "-"
        figures = f"{row.ms:>10.4f} {row.tflops():>8.2f} {f'{gbps:.0f}' if gbps else '-':>6} {ratio:>8}"
        lines.append(f"{start} {figures} {f'{share:.0%}' if share else '-':>8}")
    return lines


def options_of(arguments: list[str] | None) -> tuple[argparse.Namespace, list[suite.Case], list[peer.Peer]]:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"{', '.join(suite.GROUPS)}, a case or a pattern; default: all")
    parser.add_argument("--peers", default="all", help="all, none or NAME,...")
    parser.add_argument("--out", type=Path, help="a .jsonl file; default: results/h200.jsonl, or results/cpu.jsonl")
    parser.add_argument("--limit", type=float, default=0.5, help="seconds a call of sparsek may take (default 0.5)")
    parser.add_argument("--list", action="store_true", help="list the cases and the peers, run nothing")
    options = parser.parse_args(arguments)
    try:
        return options, suite.select(options.cases), peers.select(options.peers)
    except ValueError as error:
        parser.error(str(error))


def usable(chosen: list[peer.Peer]) -> list[peer.Peer]:
    """The peers that are here; says why others are not."""
    found = []
    for candidate in chosen:
        reason = candidate.unavailable()
        if reason is None:
            found.append(candidate)
        else:
            print(f"peer {candidate.name}: absent, {reason}")
    return found


def default_file(device: str) -> Path:
    """results/h200.jsonl, by the GPU's name; results/cpu.jsonl for the CPU cases."""
    gpu = (
        torch.cuda.get_device_name().lower().replace("nvidia", "").strip().replace(" ", "-")
        if device == "cuda"
        else "cpu"
    )
    return results.FOLDER / f"{gpu}.jsonl"


def run(options: argparse.Namespace, cases: list[suite.Case], chosen: list[peer.Peer]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(sparsek.num_threads())
    gpu = torch.cuda.is_available()
    if not gpu:
        left_out = [case for case in cases if case.device == "cuda"]
        cases = [case for case in cases if case.device == "cpu"]
        print(f"no GPU: {len(left_out)} GPU cases are left out, {len(cases)} CPU cases run")
    available, own = usable(chosen), peer.own()
    timers = {"cpu": Timer("cpu")}
    ceilings = {"cpu": Ceilings(None, None)}
    if any(case.device == "cuda" for case in cases):
        timers["cuda"] = Timer("cuda")
        ceilings["cuda"] = timers["cuda"].ceilings()
        file = options.out or default_file("cuda")
        results.save(file, measure.ceiling_rows(ceilings["cuda"]))
        print(f"ceilings: {ceilings['cuda'].tflops:.0f} TFLOPS (cuBLAS), {ceilings['cuda'].gbps:.0f} GB/s (copy)")
    print(HEADER)
    progress = Progress(len(cases))
    for case in cases:
        progress.show(case.name)
        rows: list[Row] = []
        complete = False
        try:
            started = lambda impl, name=case.name: progress.show(f"{name} {impl}")  # noqa: E731
            for row in measure.run_case(case, own, available, timers[case.device], options.limit, started):
                rows.append(row)
            complete = True
        finally:  # after Ctrl-C too
            progress.advance()
            print("\n".join(table_lines(rows, ceilings[case.device])), flush=True)
            kept = [row for row in rows if row.ms or row.status.startswith(("OOM", "skipped"))]
            lines = [row.to_json(ceilings[case.device]) for row in kept]
            results.save(options.out or default_file(case.device), lines, whole_cases=complete)


def main(arguments: list[str] | None = None) -> int:
    options, cases, chosen = options_of(arguments)
    if options.list:
        print("\n".join([*(case.name for case in cases), *(f"peer {candidate.name}" for candidate in chosen)]))
        return 0
    warnings.filterwarnings("ignore", "Sparse (BSR|CSR) tensor support is in beta|Sparse invariant checks")
    warnings.filterwarnings("ignore", "bsr_dense_addmm uses non-optimal")  # what a user gets by default
    try:
        run(options, cases, chosen)
    except KeyboardInterrupt:
        print("interrupted: finished rows are kept")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
