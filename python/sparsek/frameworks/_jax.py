"""JAX's arrays, those included that it is tracing."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from ._framework import Array, Framework

_LEGACY_STREAM = 1  # DLPack's name for the legacy default stream, and cudaStreamLegacy's address


class Jax(Framework):
    """JAX shows no stream: work goes to the legacy default stream, behind the inputs, and is waited for."""

    name = "jax"
    may_trace = True

    def __init__(self) -> None:
        import jax

        self._jax = jax

    def traced(self, array: Array) -> bool:
        """Whether the array stands for one that JAX will know only when it runs a compiled function."""
        return isinstance(array, self._jax.core.Tracer)

    def _device(self, array: Array) -> Any:
        if self.traced(array):
            return None  # nobody knows yet where it will be
        devices = array.devices()
        if len(devices) != 1:
            raise ValueError(f"expected an array on one device, got one sharded over {len(devices)}")
        (device,) = devices
        return device

    def device(self, array: Array) -> str:
        device = self._device(array) or self._jax.devices()[0]
        return "cpu" if device.platform == "cpu" else f"cuda:{device.local_hardware_id}"

    def stream(self, array: Array) -> int:
        return 0 if self.device(array) == "cpu" else _LEGACY_STREAM

    def export(self, array: Array) -> Any:
        if self.device(array) == "cpu":
            return array.block_until_ready()
        return array.__dlpack__(stream=_LEGACY_STREAM)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        device = self._device(like)
        # A fresh buffer that nothing else refers to: the one place where writing to a JAX array is sound.
        return self._jax.numpy.empty(shape, dtype, device=device).block_until_ready()

    def from_numpy(self, array: np.ndarray, like: Array) -> Array:
        return self._place(array, self._device(like))

    def _place(self, array: Array, device: Any) -> Array:
        # int64 would become int32; and while JAX traces, a traced array that may be kept for a later call.
        with self._jax.enable_x64(True), self._jax.ensure_compile_time_eval():
            return self._jax.device_put(array, device)

    def to_numpy(self, array: Array) -> np.ndarray:
        if self.traced(array):
            raise TypeError(
                "expected arrays with known values, got one that jax.jit is tracing: do this outside of jit "
                "(BlockMask.from_indices and from_csr go without values under check=False)"
            )
        return np.asarray(array)

    def to_device(self, array: Array, device: str) -> Array:
        if self.traced(array):
            return array
        kind, _, index = device.partition(":")
        return self._place(array, self._jax.local_devices(backend=kind)[int(index or 0)])

    def contiguous(self, array: Array, dtype: str) -> Array:
        if self.traced(array):
            return array if dtype == "int64" else array.astype(dtype)  # sparsek.jax widens offsets
        with self._jax.enable_x64(True):
            return array.astype(dtype)

    def reinterpret(self, array: Array, dtype: str) -> Array:
        return array.view(dtype)

    def indices(self, values: np.ndarray, like: Array) -> Array:
        return self.from_numpy(values.astype(np.int32), like)

    def put(self, array: Array, index: Any, values: Any) -> Array:
        return array.at[index].set(values)

    def finish(self, device_index: int, stream: int) -> None:
        if stream != 0:
            _core.synchronize(device_index, stream)

    def check_writable(self, name: str, array: Array) -> None:
        raise TypeError(f"{name}: JAX arrays are immutable, call without {name}=")
