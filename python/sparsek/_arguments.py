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
