"""PyTorch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from ._framework import Array, Framework


class Torch(Framework):
    name = "torch"

    def __init__(self) -> None:
        import torch

        from .. import _tangents

        self._torch = torch
        self._have_tangents = _tangents.have_tangents
        self.empty_like = torch.empty_like  # for the native code, without a Python call in between
        self._dtypes = {
            name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "int32", "int64", "uint8")
        }
        self.exchange = _core.exchange_of(torch.Tensor, self._dtypes)
        self._names = {dtype: name for name, dtype in self._dtypes.items()}

    def device(self, array: Array) -> str:
        device = array.device
        return f"cuda:{device.index}" if device.type == "cuda" else device.type

    def dtype(self, array: Array) -> str:
        return self._names.get(array.dtype) or super().dtype(array)

    def stream(self, array: Array) -> int:
        if not array.is_cuda:
            return 0
        if self.exchange is not None:
            return self.exchange.current_stream(array.device.index)
        return self._torch.cuda.current_stream(array.device).cuda_stream

    def export(self, array: Array) -> Any:
        if array.requires_grad:
            array = array.detach()
        if array.is_cuda and array.device.index != self._torch.cuda.current_device():
            # torch exports arrays of the current device only.
            with self._torch.cuda.device(array.device):
                return array.__dlpack__(stream=-1)
        return array

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array) -> Array:
        return like.new_empty(*shape, dtype=self._dtypes[dtype])  # torch reads a tuple much slower

    def from_numpy(self, array: np.ndarray, like: Array) -> Array:
        return self._torch.as_tensor(array, device=like.device)

    def full(self, shape: tuple[int, ...], value: int, like: Array) -> Array:
        # Filled on the device: a copy from the host would wait for it, and could not be captured in a CUDA graph.
        return like.new_full(shape, value, dtype=self._dtypes["int32"])

    def to_numpy(self, array: Array) -> np.ndarray:
        return array.detach().cpu().numpy()

    def to_device(self, array: Array, device: str) -> Array:
        return array.to(device)

    def contiguous(self, array: Array, dtype: str) -> Array:
        return array.to(self._dtypes[dtype]).contiguous()

    def reinterpret(self, array: Array, dtype: str) -> Array:
        return array.view(self._dtypes[dtype])

    def check_no_grad(self, name: str, array: Array) -> None:
        if array.requires_grad and self._torch.is_grad_enabled():
            raise NotImplementedError(
                f"{name}: expected a tensor that needs no gradient, got requires_grad=True; "
                "sparsek.torch has gradients, or call under torch.no_grad() or pass a detached tensor"
            )
        if self._have_tangents(array):
            raise NotImplementedError(
                f"{name}: expected a tensor without a tangent, got one: no forward-mode derivatives"
            )
