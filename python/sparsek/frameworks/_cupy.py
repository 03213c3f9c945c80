"""CuPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._framework import Array, Framework


class CuPy(Framework):
    name = "cupy"

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def device(self, array: Array) -> str:
        return f"cuda:{array.device.id}"

    def stream(self, array: Array) -> int:
        with array.device:
            return self._cupy.cuda.get_current_stream().ptr

    def export(self, array: Array) -> Any:
        return array.__dlpack__(stream=-1)  # None would make the legacy default stream wait

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        with like.device:
            return self._cupy.empty(shape, dtype)

    def from_numpy(self, array: np.ndarray, like: Array) -> Array:
        with like.device:
            return self._cupy.asarray(array)

    def to_numpy(self, array: Array) -> np.ndarray:
        return array.get()

    def to_device(self, array: Array, device: str) -> Array:
        kind, _, index = device.partition(":")
        if kind != "cuda":
            return super().to_device(array, device)
        with self._cupy.cuda.Device(int(index or 0)):
            return self._cupy.asarray(array)

    def contiguous(self, array: Array, dtype: str) -> Array:
        with array.device:
            return self._cupy.ascontiguousarray(array, dtype)

    def reinterpret(self, array: Array, dtype: str) -> Array:
        return array.view(dtype)
