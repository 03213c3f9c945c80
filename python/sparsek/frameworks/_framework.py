"""What sparsek asks of an array library, and how it reads one that it does not know."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

_DL_CPU, _DL_CUDA, _DL_CUDA_HOST = 1, 2, 3


class Framework:
    """Any object with `__dlpack__` and `__dlpack_device__`, in host memory."""

    name = "dlpack"
    may_trace = False  # whether its arrays may be without values, see Jax
    exchange: Any = None  # the `_core.Exchange` of its arrays, which are then read without a Python call

    def device(self, array: Array) -> str:
        """'cpu' or 'cuda:INDEX'."""
        kind, index = array.__dlpack_device__()
        if kind in (_DL_CPU, _DL_CUDA_HOST):
            return "cpu"
        if kind == _DL_CUDA:
            return f"cuda:{index}"
        raise ValueError(f"expected an array on the CPU or a CUDA device, got DLPack device type {kind}")

    def dtype(self, array: Array) -> str:
        """The dtype's name: 'float16', 'bfloat16', 'int32', ..."""
        return str(array.dtype).rsplit(".", 1)[-1]

    def stream(self, array: Array) -> int:
        """The stream that the caller's work on the array's device goes to, as an address."""
        return 0

    def export(self, array: Array) -> Any:
        """What the native code imports, without waiting for the device."""
        return array

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        """An uninitialised array beside `like`, from the library's own allocator."""
        if self.device(like) != "cpu":
            raise TypeError(f"cannot allocate a {type(like).__name__} on {self.device(like)}: pass out=")
        return np.empty(shape, dtype)

    def empty_like(self, array: Array) -> Array:
        """An uninitialised array of the shape and dtype of a C-contiguous one, beside it and C-contiguous too."""
        return self.empty(tuple(array.shape), self.dtype(array), array)

    def from_numpy(self, array: np.ndarray, like: Array) -> Array:
        """A copy of a NumPy array beside `like` (the array itself where it already is)."""
        return array

    def full(self, shape: tuple[int, ...], value: int, like: Array) -> Array:
        """A new int32 array of one value beside `like`."""
        return self.from_numpy(np.full(shape, value, np.int32), like)

    def to_numpy(self, array: Array) -> np.ndarray:
        """The values in host memory; waits for the device."""
        return np.from_dlpack(array)

    def to_device(self, array: Array, device: str) -> Array:
        """A copy on another device (the array itself where it already is)."""
        if device != self.device(array):
            raise ValueError(f"device: a {type(array).__name__} cannot live on {device!r}, pass an array that does")
        return array

    def contiguous(self, array: Array, dtype: str) -> Array:
        """A C-contiguous copy of that dtype (the array itself where it already is)."""
        return np.ascontiguousarray(self.to_numpy(array), dtype)

    def reinterpret(self, array: Array, dtype: str) -> Array:
        """The same bits as another dtype of the same width, not copied."""
        return self.to_numpy(array).view(dtype)

    def indices(self, values: np.ndarray, like: Array) -> Array:
        """Integers beside `like`, of the dtype that the library indexes with."""
        return self.from_numpy(values.astype(np.int64), like)

    def put(self, array: Array, index: Any, values: Any) -> Array:
        """The array with `array[index] = values`, done in place where the library can."""
        array[index] = values
        return array

    def finish(self, device_index: int, stream: int) -> None:
        """Called after work was enqueued on a stream of a device, for libraries that do not know of streams."""

    def check_writable(self, name: str, array: Array) -> None:
        """Raises when the library forbids writing to the array."""

    def check_no_grad(self, name: str, array: Array) -> None:
        """Raises when the caller expects a gradient to flow through the array."""
