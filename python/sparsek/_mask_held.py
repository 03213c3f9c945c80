"""What a BlockMask holds: its sizes and arrays, what is counted from them, and the kernels' view of them."""

from __future__ import annotations

from typing import Any

from . import _mask_arrays, _mask_lists, frameworks
from ._mask_arrays import Arrays
from ._mask_lists import Grid, Lists

Array = Any


class MaskArrays:
    """The part of a BlockMask that is the same however it was made."""

    def __init__(self, grid: Grid, num_batches: int, num_heads: int, arrays: Arrays) -> None:
        """For the classmethods, which check and convert what they are given."""
        self.q_len = grid.q_len
        self.kv_len = grid.kv_len
        self.q_block = grid.q_block
        self.kv_block = grid.kv_block
        self.num_batches = num_batches
        self.num_heads = num_heads
        self._grid = grid
        self._arrays = arrays
        self._native_view: Any = None
        self._viewed: Arrays | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which make a native view of their own."""
        return {**self.__dict__, "_native_view": None, "_viewed": None}

    @property
    def indices(self) -> Array:
        return self._arrays.indices

    @property
    def offsets(self) -> Array | None:
        return self._arrays.offsets

    @property
    def counts(self) -> Array | None:
        return self._arrays.counts

    @property
    def bitmap_indices(self) -> Array | None:
        return self._arrays.bitmap_indices

    @property
    def bitmaps(self) -> Array | None:
        return self._arrays.bitmaps

    @property
    def device(self) -> str:
        """'cpu' or 'cuda:INDEX'."""
        return frameworks.of(self.indices).device(self.indices)

    @property
    def num_q_blocks(self) -> int:
        return self._grid.num_q_blocks

    @property
    def num_kv_blocks(self) -> int:
        return self._grid.num_kv_blocks

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays."""
        return sum(array.nbytes for array in self._arrays.given().values())

    @property
    def density(self) -> float:
        """Listed blocks / all blocks."""
        return self._density(self._lists())

    def _density(self, lists: Lists) -> float:
        return len(lists.rows) / max(1, lists.num_lists * self.num_kv_blocks)

    @property
    def num_pairs(self) -> int:
        """Attended (query, key) pairs, summed over its batches and heads."""
        return int(_mask_lists.num_pairs(self._lists()).sum())

    # For the kernels and the algebra

    def _lists(self) -> Lists:
        # Not kept: the arrays may change in place.
        return _mask_arrays.read(self._grid, self.num_batches, self.num_heads, self._arrays)

    def _view(self) -> Any:
        """The `_core.BlockMaskView` that the kernels read: kept, since it holds the arrays' addresses only."""
        if self._viewed is not self._arrays:
            from . import _core

            exported = self._arrays.map(frameworks.export)
            self._native_view = _core.BlockMaskView(
                q_len=self.q_len,
                kv_len=self.kv_len,
                q_block=self.q_block,
                kv_block=self.kv_block,
                num_batches=self.num_batches,
                num_heads=self.num_heads,
                indices=exported.indices,
                offsets=exported.offsets,
                counts=exported.counts,
                bitmap_indices=exported.bitmap_indices,
                bitmaps=exported.bitmaps,
            )
            self._viewed = self._arrays
        return self._native_view
