"""What this installation can run on this machine."""

from __future__ import annotations

from typing import NamedTuple

from . import _core


class Backend(NamedTuple):
    """One row of an operation's backend table."""

    operation: str  # "attention" or "bsr_gemm"
    name: str  # what to pass as backend=
    available: bool  # on this machine
    reason: str  # why not; empty when it is available


def backends() -> list[Backend]:
    """The backends of each operation, in the order in which they are preferred."""
    tables = {"attention": _core.attention_backends(), "bsr_gemm": _core.bsr_gemm_backends()}
    return [Backend(operation, *row) for operation, rows in tables.items() for row in rows]


def num_threads() -> int:
    """Threads that the CPU backends use: SPARSEK_NUM_THREADS, else the CPUs that the process may run on."""
    return _core.num_threads()


def set_num_threads(count: int) -> None:
    """Sets the threads that the CPU backends use, for the whole process.

    Args:
        count: threads; 0 goes back to the default.

    Raises:
        ValueError: a negative count.
        TypeError: no integer.
    """
    _core.set_num_threads(count)
