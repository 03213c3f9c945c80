"""Runs one case with every implementation: checked, timed, as rows for the table and for the results."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import inputs as make_inputs
import torch
from peer import Peer, first_line, sparsek_call
from results import record
from suite import UNDER_LOAD, Case
from timing import Ceilings, Timer

import sparsek
from sparsek import BSRMatrix


@dataclass
class Row:
    case: Case
    impl: str
    ms: float | None = None
    status: str = ""  # why there is no time
    extra_bytes: int | None = None  # peak beyond inputs and output
    load_ms: float | None = None  # under load

    def tflops(self) -> float | None:
        return self.case.flops / self.ms / 1e9 if self.ms else None

    def gbps(self, ceilings: Ceilings) -> float | None:
        """Where the case is bound by memory: at the ceilings, moving its bytes takes longer than its FLOP."""
        if (
            not self.ms
            or not ceilings.gbps
            or self.case.bytes / ceilings.gbps < self.case.flops / ceilings.tflops / 1e3
        ):
            return None
        return self.case.bytes / self.ms / 1e6

    def share(self, ceilings: Ceilings) -> float | None:
        """Of the ceiling that bounds the case."""
        if not self.ms or not ceilings.tflops:
            return None
        gbps = self.gbps(ceilings)
        return gbps / ceilings.gbps if gbps else self.tflops() / ceilings.tflops

    def to_json(self, ceilings: Ceilings) -> dict:
        params = self.case.params
        if self.extra_bytes is not None:
            params["extra_bytes"] = self.extra_bytes
        if self.load_ms is not None:
            params["load_ms"] = round(self.load_ms, 5)
        if self.status:
            params["status"] = self.status
        if self.case.device == "cpu":
            params["threads"] = sparsek.num_threads()
        if self.impl.startswith(("torch/", "cublas")):
            params["version"] = f"torch {torch.__version__}"
        share = self.share(ceilings)
        if share is not None:
            params["share_of_ceiling"] = round(share, 4)
        machine = machine_name(self.case.device)
        figures = (self.ms, self.tflops(), machine, self.gbps(ceilings))
        return record(self.case.name, self.impl, self.case.op, params, *figures)


def machine_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"none ({platform.processor() or platform.machine()})"


def ceiling_rows(ceilings: Ceilings) -> list[dict]:
    machine, n = machine_name("cuda"), 8192
    product = {"m": n, "n": n, "k": n, "dtype": "float16", "version": f"torch {torch.__version__}"}
    ms = 2 * n**3 / ceilings.tflops / 1e9
    copied = 2 << 30
    return [
        record("ceiling/matmul/n8192", "cublas", "ceiling", product, ms, ceilings.tflops, machine),
        record(
            "ceiling/copy/1gib",
            "torch/copy",
            "ceiling",
            {"bytes": copied},
            copied / ceilings.gbps / 1e6,
            None,
            machine,
            ceilings.gbps,
        ),
    ]


def run_case(
    case: Case,
    own: list[Peer],
    peers: list[Peer],
    timer: Timer,
    limit: float,
    started: Callable[[str], None] = lambda impl: None,
) -> Iterator[Row]:
    """Rows of the implementations that take the case, as they finish.

    limit    seconds: a backend of sparsek whose estimate is longer is skipped
    started  called with each implementation's name
    """
    takers = [peer for peer in [*own, *peers] if peer.declines(case) is None]
    if not takers:
        return
    try:
        data = make_inputs.make(case)
        expected = _expected(case, data)
    except Exception as error:
        _forget()
        status = f"OOM making inputs or sparsek's result: {first_line(error)}" if _is_oom(error) else first_line(error)
        for peer in takers:
            yield Row(case, peer.name, status=f"no result to check against: {status}")
        return
    for peer in takers:
        seconds = case.estimate(peer.name.removeprefix("sparsek/")) if peer in own else 0
        if seconds > limit:
            yield Row(case, peer.name, status=f"skipped: would take about {seconds:.1f} s")
            continue
        started(peer.name)
        row = Row(case, peer.name)
        try:
            call = peer.prepare(case, data)
            problem = compare(case, data, call(0), expected, peer.tolerance)
            if problem:
                row.status = f"wrong: {problem}"
            else:
                _forget()
                row.extra_bytes = timer.extra_bytes(call)
                row.ms = timer.milliseconds(call, len(data.sets), case.calls_in_graph)
                if case.name in UNDER_LOAD:
                    row.load_ms = timer.milliseconds_under_load(call, len(data.sets))
        except Exception as error:  # a peer's failure is a row
            row.ms = None
            row.status = "OOM" if _is_oom(error) else f"failed: {first_line(error)}"
        call = None
        _forget()
        yield row


def _is_oom(error: Exception) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "out of memory" in str(error).lower()


def _forget() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _expected(case: Case, data) -> torch.Tensor:
    """sparsek's result on the first set of inputs."""
    out = sparsek_call(case, data, None)(0)
    return block_values(out, data) if case.op == "bsr_gemm" else out


def compare(case: Case, data, out, expected: torch.Tensor, tolerance: float) -> str | None:
    """What is wrong with a result, or None."""
    actual = block_values(out, data) if case.op == "bsr_gemm" else out
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if not torch.isfinite(actual).all():
        return "values that are not finite"
    error = (actual.float() - expected.float()).abs().max().item()
    allowed = tolerance * expected.abs().max().item()
    return None if error <= allowed else f"differs from sparsek by {error:.2e}, allowed {allowed:.2e}"


def block_values(out, data) -> torch.Tensor:
    """A product's result; of a sampled one the values at the pattern's blocks."""
    if isinstance(out, BSRMatrix):
        return out.values
    if data.pattern is None:
        return out
    pattern, (rows, cols) = data.pattern, data.pattern.block_shape
    counts = pattern.row_offsets.diff()
    row_indices = torch.repeat_interleave(torch.arange(len(counts), device=out.device), counts)
    blocks = out.reshape(out.shape[0] // rows, rows, out.shape[1] // cols, cols).transpose(1, 2)
    return blocks[row_indices, pattern.col_indices.long()]
