"""What sparsek asks of an array library: its device, its stream, a new array, a view for the native code.

One adapter for each library that users bring arrays from. An array of any other library that speaks DLPack is read
through `Framework`; results then come back as NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core

Array = Any

_DL_CPU, _DL_CUDA, _DL_CUDA_HOST = 1, 2, 3
_LEGACY_STREAM = 1  # DLPack's name for the legacy default stream, and cudaStreamLegacy's address


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

    def finish(self, stream: int) -> None:
        """Called after work was enqueued, for libraries that do not know of streams."""

    def check_writable(self, name: str, array: Array) -> None:
        """Raises when the library forbids writing to the array."""

    def check_no_grad(self, name: str, array: Array) -> None:
        """Raises when the caller expects a gradient to flow through the array."""


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


class Torch(Framework):
    name = "torch"

    def __init__(self) -> None:
        import torch

        from . import _tangents

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

    def finish(self, stream: int) -> None:
        if stream != 0:
            _core.synchronize(stream)

    def check_writable(self, name: str, array: Array) -> None:
        raise TypeError(f"{name}: JAX arrays are immutable, call without {name}=")


_ADAPTERS: dict[str, type[Framework]] = {
    "numpy": NumPy,
    "torch": Torch,
    "cupy": CuPy,
    "jax": Jax,
    "jaxlib": Jax,
}
_by_type: dict[type, Framework] = {}
_by_class: dict[type[Framework], Framework] = {}


def of(array: Array, name: str = "array") -> Framework:
    """The adapter for an array.

    Raises TypeError, naming the argument `name`, for something that is no array.
    """
    kind = type(array)
    found = _by_type.get(kind)
    if found is None:
        # A subclass (torch.nn.Parameter, numpy.memmap) is what its base is.
        modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
        adapter = next((_ADAPTERS[module] for module in modules if module in _ADAPTERS), None)
        if adapter is not None and not hasattr(array, "__dlpack__"):
            adapter = None
        if adapter is None and hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
            adapter = Framework
        if adapter is None:
            raise TypeError(
                f"{name}: expected an array (numpy, torch, cupy, jax or any with __dlpack__), got {kind.__name__}"
            )
        found = _by_class.get(adapter) or _by_class.setdefault(adapter, adapter())
        _by_type[kind] = found
    return found


def export(array: Array) -> Any:
    """What the native code imports of an array of any library."""
    return of(array).export(array)


def refuse_under_jit(name: str, given: Any) -> None:
    """Raises NotImplementedError for an argument that compiled functions of JAX cannot take."""
    if given is not None:
        raise NotImplementedError(f"{name}: expected None inside jax.jit, got {type(given).__name__}")


def native(array: Array, name: str = "array") -> tuple[Framework, Array]:
    """The adapter for an array, and the array: one of an unknown library becomes a NumPy view of its memory.

    Raises TypeError, naming the argument `name`, for something that is no array.
    """
    framework = of(array, name)
    if type(framework) is Framework:
        array = framework.to_numpy(array)
        framework = of(array, name)
    return framework, array


def dtype_name(dtype: Any) -> str:
    """The name of a dtype given as a string or as a library's own object (torch.float32, np.float16, jnp.bfloat16)."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    return name.rsplit(".", 1)[-1]


def move(array: Array, target: Any) -> Array:
    """A copy beside the array `target`, or on the device that it names (the array itself where it already is)."""
    source = of(array)
    if not hasattr(target, "__dlpack__"):
        return source.to_device(array, str(target))
    goal, target = native(target, "target")
    if goal is source:
        return source.to_device(array, source.device(target))
    host = source.to_numpy(array)
    return goal.from_numpy(host if host.flags.writeable else host.copy(), target)
