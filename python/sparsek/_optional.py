"""Packages that only some features need."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str, what: str) -> Any:
    """The module; where it is missing an ImportError that says what needs it and what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {module}: pip install 'sparsek[{extra}]'") from error
