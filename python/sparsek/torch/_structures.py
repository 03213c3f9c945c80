"""BSRMatrix to and from what an operator can take: its values, index tensors and a list of sizes."""

from __future__ import annotations

import sys
import weakref
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._bsr_structure import Structure
from ..bsr_matrix import BSRMatrix

# What an operand is besides its values; no Tensor[], for which vmap has no fallback.
FIELDS = ("row_offsets", "col_indices", "value_indices", "original_row_offsets", "original_col_indices")
NUM_FLAT = len(FIELDS) + 1

Flat = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None, list[int]]

DENSE: Flat = (None, None, None, None, None, [])


def schema(name: str) -> str:
    """The arguments of an operator for one operand, without its values."""
    return ", ".join(f"Tensor? {name}_{field}" for field in FIELDS) + f", SymInt[] {name}_sizes"


def flatten(operand: Tensor | BSRMatrix) -> Flat:
    """Its FIELDS, and the sizes (rows, cols, bm, bk) of a matrix."""
    if not isinstance(operand, BSRMatrix):
        return DENSE
    original = operand._original
    arrays = (None, None) if original is None else (original.row_offsets, original.col_indices)
    sizes = [*operand.shape, *operand.block_shape]
    return operand.row_offsets, operand.col_indices, operand.value_indices, *arrays, sizes


class _Kept:
    """What was derived from a structure once: the plans of the kernels and the transpose."""

    def __init__(self, col_indices: Tensor) -> None:
        self.col_indices = weakref.ref(col_indices)
        self.plans: dict[bool, Any] = {}
        self.transposed: Structure | None = None


# By row_offsets. Nothing kept may refer to its key, else it would never go.
_kept: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def unflatten(values: Tensor, flat: Flat) -> Tensor | BSRMatrix:
    row_offsets, col_indices, value_indices, *original, sizes = flat
    if not sizes:
        return values
    shape, block_shape = tuple(sizes[:2]), tuple(sizes[2:])
    structure = _structure(shape, block_shape, row_offsets, col_indices)
    if value_indices is None:
        return BSRMatrix._make(values, structure)
    structure = replace(structure, value_indices=value_indices)
    return BSRMatrix._make(values, structure, _structure(shape[::-1], block_shape[::-1], *original))


def _structure(shape: Any, block_shape: Any, row_offsets: Tensor, col_indices: Tensor) -> Structure:
    kept = _kept.get(row_offsets)
    if kept is None or kept.col_indices() is not col_indices:
        kept = _kept[row_offsets] = _Kept(col_indices)
    plans = kept.plans
    if row_offsets.is_cuda and _in_cuda_graph(row_offsets.device):
        plans = {False: None, True: None, **plans}  # making one waits for the GPU, which a capture forbids
    structure = Structure(shape, block_shape, row_offsets, col_indices, plans=plans)
    if kept.transposed is not None:
        structure.__dict__["transposed"] = kept.transposed  # where the cached property keeps it
    return structure


def _in_cuda_graph(device: torch.device) -> bool:
    """While a graph is captured, and in the run before it that torch.compile makes in the graph's memory."""
    if torch.cuda.is_current_stream_capturing():
        return True
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    manager = trees and trees.get_manager(device.index, create_if_none_exists=False)
    return manager is not None and torch.cuda.current_stream(device) == manager.stream


def transpose(operand: Tensor | BSRMatrix) -> Tensor | BSRMatrix:
    """The transpose; that of a structure is computed on the host the first time, and kept while its tensors live."""
    if not isinstance(operand, BSRMatrix):
        return operand.t()
    result = operand.T
    if operand._original is None:
        kept = _kept.get(operand.row_offsets)
        if kept is not None:
            kept.transposed = operand._structure.transposed
    return result
