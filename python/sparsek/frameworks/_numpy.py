"""NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._framework import Array, Framework


class NumPy(Framework):
    name = "numpy"

    def device(self, array: Array) -> str:
        return "cpu"

    def dtype(self, array: Array) -> str:
        return array.dtype.name

    def export(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":
            raise TypeError(
                "NumPy cannot export bfloat16 arrays through DLPack: use float16 or float32, or another library"
            )
        return array

    def to_numpy(self, array: Array) -> np.ndarray:
        return array

    def check_writable(self, name: str, array: Array) -> None:
        if not array.flags.writeable:
            raise ValueError(f"{name}: expected a writable array, got a read-only one")
