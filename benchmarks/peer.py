"""What can be measured, in one form: one small class for each implementation. Here: the form, and sparsek's backends.

prepare(case, inputs) returns a call of one argument, the number of a set of inputs, which returns the result: for
attention (B, Sq, Hq, D), for a product a dense matrix or a BSRMatrix. Nothing but the call is timed.
"""

from __future__ import annotations

import importlib

import torch
from suite import Case
from timing import Call

import sparsek


class Peer:
    """One implementation. `tolerance` is the largest error allowed, relative to the largest value of the result."""

    name = ""
    tolerance = 0.02

    def unavailable(self) -> str | None:
        """Why it can not be used on this machine, or None."""
        return None

    def declines(self, case: Case) -> str | None:
        """Why it does not take the case, or None."""
        raise NotImplementedError

    def prepare(self, case: Case, inputs) -> Call:
        raise NotImplementedError


class Sparsek(Peer):
    """One backend of sparsek."""

    def __init__(self, operation: str, backend: str) -> None:
        self.name, self.operation, self.backend = f"sparsek/{backend}", operation, backend

    def declines(self, case: Case) -> str | None:
        if case.op != self.operation:
            return "another operation"
        return None if (self.backend == "cpu") == (case.device == "cpu") else "another device"

    def prepare(self, case: Case, inputs) -> Call:
        return sparsek_call(case, inputs, self.backend)


def sparsek_call(case: Case, inputs, backend: str | None) -> Call:
    """sparsek's operation; backend None: the one that it selects."""
    if case.op == "bsr_gemm":
        return lambda i: sparsek.bsr_gemm(*inputs.sets[i], out_pattern=inputs.pattern, backend=backend)
    options = attention_options(case)
    return lambda i: sparsek.attention(*inputs.sets[i], mask=inputs.mask, backend=backend, **options)


def attention_options(case: Case) -> dict:
    """causal and window of a case; a documents mask is causal by itself."""
    window = None if case.window is None else (case.window, None)
    return {"causal": case.causal and not case.documents, "window": window}


def own() -> list[Sparsek]:
    """The backends that are available here, in order of preference."""
    return [Sparsek(row.operation, row.name) for row in sparsek.backends() if row.available]


class Package(Peer):
    """A peer in a package that may not be installed."""

    module = ""
    device = "cuda"

    def unavailable(self) -> str | None:
        if self.device == "cuda" and not torch.cuda.is_available():
            return "no GPU"
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a broken installation must not end the run
            missing = isinstance(error, ModuleNotFoundError)
            return f"{self.module} is not installed" if missing else f"import {self.module}: {first_line(error)}"
        return None


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
