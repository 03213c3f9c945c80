"""BlockMask and BSRMatrix as pytrees: their arrays are the leaves, the sizes the context.

The sizes are JSON, so that torch.export can save a program that takes them. They are fixed in an exported program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from .._bsr_structure import Structure
from .._mask_arrays import Arrays
from .._mask_lists import Grid
from ..block_mask import BlockMask
from ..bsr_matrix import BSRMatrix

_ORIGINAL = ("original_row_offsets", "original_col_indices")


def _mask_leaves(mask: BlockMask) -> tuple[dict[str, Any], list[Any]]:
    sizes = [mask.q_len, mask.kv_len, mask.q_block, mask.kv_block]
    return mask._arrays.given(), [sizes, mask.num_batches, mask.num_heads]


def _make_mask(leaves: dict[str, Any], context: list[Any]) -> BlockMask:
    sizes, num_batches, num_heads = context
    return BlockMask(Grid(*sizes), num_batches, num_heads, Arrays(**leaves))


def _matrix_leaves(matrix: BSRMatrix) -> tuple[dict[str, Any], list[Any]]:
    leaves = {"values": matrix.values, "row_offsets": matrix.row_offsets, "col_indices": matrix.col_indices}
    if matrix._original is not None:
        arrays = (matrix.value_indices, matrix._original.row_offsets, matrix._original.col_indices)
        leaves |= zip(("value_indices", *_ORIGINAL), arrays, strict=True)
    return leaves, [list(matrix.shape), list(matrix.block_shape)]


def _make_matrix(leaves: dict[str, Any], context: list[Any]) -> BSRMatrix:
    shape, block_shape = map(tuple, context)
    structure = [leaves[name] for name in ("row_offsets", "col_indices")]
    original = None
    if "value_indices" in leaves:
        original = Structure(shape[::-1], block_shape[::-1], *(leaves[name] for name in _ORIGINAL))
        structure.append(leaves["value_indices"])
    return BSRMatrix._make(leaves["values"], Structure(shape, block_shape, *structure), original)


def _register(kind: type, leaves_of: Callable, make: Callable) -> None:
    def flatten(tree: Any) -> tuple[list[Any], tuple]:
        leaves, context = leaves_of(tree)
        return list(leaves.values()), (tuple(leaves), json.dumps(context))

    def flatten_with_keys(tree: Any) -> tuple[list[Any], tuple]:
        leaves, context = flatten(tree)
        return [(pytree.GetAttrKey(name), leaf) for name, leaf in zip(context[0], leaves, strict=True)], context

    def unflatten(leaves: Any, context: tuple) -> Any:
        names, sizes = context
        return make(dict(zip(names, leaves, strict=True)), json.loads(sizes))

    pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"sparsek.{kind.__name__}",
        to_dumpable_context=json.dumps,
        from_dumpable_context=lambda text: (tuple(json.loads(text)[0]), json.loads(text)[1]),
        flatten_with_keys_fn=flatten_with_keys,
    )


_register(BlockMask, _mask_leaves, _make_mask)
_register(BSRMatrix, _matrix_leaves, _make_matrix)
