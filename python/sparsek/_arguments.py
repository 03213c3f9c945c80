"""Checks of plain arguments."""

from __future__ import annotations

import operator
from typing import Any


def integer(name: str, value: Any, least: int = 1) -> int:
    """The integer that a caller gave; raises TypeError or ValueError where it is none or less."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """The number that a caller gave; raises TypeError where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {value!r}") from None


def backend_name(value: Any) -> str:
    """The name that a caller gave, empty for None; raises TypeError for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"backend: expected a name of sparsek.backends() or None, got {value!r}")
    return value
