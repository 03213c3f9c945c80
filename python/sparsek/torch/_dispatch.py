"""When a call may go straight to the native code, past torch's dispatcher, and what autocast makes of its tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._tangents import have_tangents

_PLAIN = {torch.Tensor, torch.nn.Parameter}
_is_compiling = torch.compiler.is_compiling
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
# vmap and torch.func wrap tensors without changing their type: only the stack of transforms tells.
_transforms = torch._C._functorch.peek_interpreter_stack
_is_grad_enabled = torch.is_grad_enabled
# For any device: asking for that of a tensor costs five times as much. torch.compile cannot trace it.
_is_any_autocast_enabled = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_CAST = {torch.float32, torch.float16, torch.bfloat16}


def runs_directly(*tensors: Tensor) -> bool:
    """Nobody but the caller looks at these tensors: no trace, no transform, no tensor subclass, no gradient."""
    if _is_compiling() or _num_dispatch_modes() or _transforms() is not None:
        return False
    grad = _is_grad_enabled()
    for tensor in tensors:  # noqa: SIM110 - a generator costs as much as all the rest
        if type(tensor) not in _PLAIN or (grad and tensor.requires_grad):
            return False
    return True


def check_tensor(name: str, value: Any) -> Tensor:
    """Raises TypeError for anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    return value


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The dtype that autocast asks for on the tensor's device; None where it is off."""
    if not (_is_compiling() or _is_any_autocast_enabled()):
        return None
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.dtype in _CAST else tensor


LIBRARY = torch.library.Library("sparsek", "FRAGMENT")
# Inductor may not choose other strides for the operators' inputs: the kernels need a contiguous last axis.
TAGS = (
    torch.Tag.pt2_compliant_tag,
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)


def define(schema: str, kernel: Any, fake: Any) -> None:
    """An operator of the library `sparsek` on the CPU and on CUDA devices, with what it gives for fake tensors."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=TAGS)
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(f"sparsek::{name}", fake, lib=LIBRARY)


def refuse_tangents(operation: str, *tensors: Tensor) -> None:
    """Raises NotImplementedError for a forward-mode derivative, which autograd would lose."""
    if have_tangents(*tensors):
        raise NotImplementedError(
            f"sparsek.torch.{operation}: expected tensors without tangents, it has no forward-mode derivatives"
        )


def refuse_second_derivatives(operation: str) -> None:
    """Makes autograd say so where a gradient of `operation`'s gradient is asked for."""

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(f"sparsek.torch.{operation}: expected a first derivative, it has no second one")

    torch.library.register_autograd(f"sparsek::{operation}_backward", backward, lib=LIBRARY)
