"""Calls of the native code from JAX programs, through XLA's foreign function interface.

A call is a value that can be hashed, so that `jax.jit` compiles each one once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, frameworks

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError("sparsek.jax needs JAX: install it with pip install 'sparsek[jax]'") from error
if not hasattr(jax, "enable_x64"):
    raise ImportError(
        f"sparsek.jax needs JAX 0.8 or later, got {jax.__version__}: install it with pip install 'sparsek[jax]' "
        "(Python 3.11 or later)"
    )

Array = Any

for _operation, _platform, _capsule in _core.jax_handlers():
    jax.ffi.register_ffi_target(f"sparsek_{_operation}", _capsule, platform=_platform)


@dataclass(frozen=True)
class Call:
    """What XLA is told of a call besides its arrays."""

    operation: str
    results: tuple[tuple[tuple[int, ...], str], ...]  # shape and dtype of each
    attributes: tuple[tuple[str, Any], ...]


def attributes(**values: Any) -> tuple[tuple[str, Any], ...]:
    """The attributes of a `Call`: bool, int, float or str each."""
    return tuple(values.items())


def _native(value: Any) -> Any:
    """An attribute with the width that the handlers read."""
    for kind, width in ((bool, np.bool_), (int, np.int64), (float, np.float32)):
        if isinstance(value, kind):
            return width(value)
    return value


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(call: Call, *arrays: Array) -> tuple[Array, ...]:
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in call.results]
    function = jax.ffi.ffi_call(f"sparsek_{call.operation}", results, vmap_method="sequential")
    return tuple(function(*arrays, **{name: _native(value) for name, value in call.attributes}))


@_run.defjvp
def _refuse(call: Call, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        f"sparsek.jax.{call.operation} has no gradient: apply jax.lax.stop_gradient to its arguments, "
        "or keep it out of what is differentiated"
    )


run = jax.jit(_run, static_argnums=0)


def array(name: str, value: Any) -> Array:
    """An argument that JAX can read: its own arrays and NumPy's."""
    if not isinstance(value, (jax.Array, np.ndarray)):
        raise TypeError(f"{name}: expected a jax.Array or a NumPy array, got {type(value).__name__}")
    return value


def spec(value: Array) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape, as the native checks take them."""
    return jnp.dtype(value.dtype).name, tuple(value.shape)


def device_index(value: Array) -> int:
    """The GPU that an array is on; -1 for the CPU, and while JAX traces, when nobody knows."""
    if isinstance(value, np.ndarray):
        platform = jax.default_backend()
        return 0 if platform in ("gpu", "cuda") else -1
    if isinstance(value, jax.core.Tracer):
        return -1
    devices = value.devices()
    if len(devices) != 1:
        raise NotImplementedError(
            f"sparsek.jax: expected arrays on one device, got one sharded over {len(devices)}: "
            "call sparsek.jax inside jax.shard_map"
        )
    device = frameworks.of(value).device(value)
    return int(device.partition(":")[2]) if device != "cpu" else -1


def checked_backend(backend: str | None, value: Array) -> str:
    """The name that the native check shall assume: while JAX traces, any known one may yet turn out right."""
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend: expected a name from sparsek.backends(), got {type(backend).__name__}")
    return "cpu" if isinstance(value, jax.core.Tracer) else backend or ""


def check_name(operation: str, backend: str | None) -> None:
    from .system import backends

    names = [row.name for row in backends() if row.operation == operation]
    if backend is not None and backend not in names:
        raise ValueError(f'backend: expected one of {", ".join(names)}, got "{backend}"')


def wide(name: str, value: Array) -> Array:
    """int64 values as XLA takes them from a JAX that has no int64: (..., 2) int32 halves, the low one first."""
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value, np.int64)
        return value.view(np.int32).reshape(*value.shape, 2)
    if not isinstance(value, jax.Array):
        raise TypeError(f"{name}: expected a jax.Array or a NumPy array, got {type(value).__name__}")
    if value.dtype == np.int64:
        with jax.enable_x64(True):
            return jax.lax.bitcast_convert_type(value, np.int32)
    value = value.astype(np.int32)
    return jnp.stack([value, value >> 31], axis=-1)
