"""What sparsek asks of an array library: its device, its stream, a new array, a view for the native code.

One adapter for each library that users bring arrays from. An array of any other library that speaks DLPack is read
through `Framework`; results then come back as NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from ._cupy import CuPy
from ._framework import Array, Framework
from ._jax import Jax
from ._numpy import NumPy
from ._torch import Torch

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
