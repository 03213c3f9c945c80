"""Forward-mode derivatives of torch, which sparsek does not have: they would be zero without a word."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import forward_ad


def have_tangents(*arrays: Any) -> bool:
    """Whether a derivative along one of the arrays is being taken (torch.func.jvp, forward_ad.dual_level)."""
    if forward_ad._current_level < 0:  # asking each tensor takes ten times as long
        return False
    return any(isinstance(array, Tensor) and _has_tangent(array) for array in arrays)


def _has_tangent(tensor: Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # under torch.vmap it cannot be asked
        return True
