"""Matrices of which only some blocks are stored."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from . import frameworks
from ._bsr_structure import Structure, check_device, check_shape, make_structure, to_host
from ._csr import offsets_of

Array = Any

_DTYPES = ("float16", "bfloat16", "float32")


class BSRMatrix:
    """A block-sparse row matrix: block row i has the blocks row_offsets[i] ... row_offsets[i + 1] - 1.

    Args:
        values: float16, bfloat16 or float32 (nnz, bm, bk), any strides; of NumPy, PyTorch, CuPy, JAX or another
            library that speaks DLPack, on the CPU or a GPU. Never copied.
        row_offsets: integers (rows / bm + 1) from 0 to nnz, not decreasing, on the device of values
        col_indices: integers (nnz): the block column of each block, on the device of values
        shape: (rows, cols), multiples of the block shape
        check: read the structure and refuse a wrong one, which waits for a GPU; with False only shapes, dtypes and
            devices are checked

    Block shapes go from 1x1 to 256x256, nnz is below 2^31. row_offsets become int64 and col_indices int32 where they
    are not. The structure must not change while the matrix is in use; values may.

    `value_indices` is None, or for a transpose, which shares the values of its original, int32 (nnz): entry e's
    block is values[value_indices[e]].

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it, what was expected and what was given.
    """

    def __init__(
        self,
        values: Array,
        row_offsets: Array,
        col_indices: Array,
        shape: tuple[int, int],
        *,
        check: bool = True,
    ) -> None:
        values = _check_values(values)
        block_shape = tuple(values.shape[1:])
        self._set(values, make_structure(shape, block_shape, row_offsets, col_indices, values, check))

    def _set(self, values: Array, structure: Structure, original: Structure | None = None) -> None:
        self.values = values
        self._structure = structure
        self._original = original  # of a transpose: the structure that it transposes
        # A transpose keeps its original alive and not the other way round: a cycle would hold GPU memory until the
        # garbage collector runs. What is costly, structure and views, is kept with the original.
        self._origin: BSRMatrix | None = None
        self._transpose: weakref.ref[BSRMatrix] | None = None
        self._views: dict[bool, Any] = {}

    def __getstate__(self) -> tuple[Array, Structure, Structure | None]:
        """For copies and pickles, which make native views and plans of their own."""
        return self.values, self._structure, self._original

    def __setstate__(self, state: tuple[Array, Structure, Structure | None]) -> None:
        self._set(*state)

    @classmethod
    def _make(cls, values: Array, structure: Structure, original: Structure | None = None) -> BSRMatrix:
        matrix = cls.__new__(cls)
        matrix._set(values, structure, original)
        return matrix

    @classmethod
    def from_dense(cls, dense: Array, block_shape: tuple[int, int], *, threshold: float = 0.0) -> BSRMatrix:
        """The blocks of a dense matrix that hold a magnitude above `threshold` (or a NaN).

        Args:
            dense: float16, bfloat16 or float32 (rows, cols), multiples of block_shape
            block_shape: (bm, bk), each from 1 to 256
            threshold: at least 0; with 0 the blocks of zeros only are dropped

        The result is of dense's library and on its device; its structure is decided on the host.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it, what was expected and what was given.
        """
        if not threshold >= 0:
            raise ValueError(f"threshold: expected at least 0, got {threshold}")
        framework, blocks, shape = _blocks_of(dense, block_shape)
        kept = (~(abs(blocks) <= threshold)).any(3).any(1)
        return cls._of_blocks(framework, blocks, shape, np.flatnonzero(framework.to_numpy(kept)))

    @classmethod
    def _of_blocks(
        cls, framework: frameworks.Framework, blocks: Array, shape: tuple[int, int], kept: np.ndarray
    ) -> BSRMatrix:
        """The matrix of some blocks, numbered row after row, of `blocks` (block rows, bm, block cols, bk)."""
        num_block_rows, block_rows, num_block_cols, block_cols = blocks.shape
        rows, cols = np.divmod(kept, max(1, num_block_cols))
        values = blocks[framework.indices(rows, blocks), :, framework.indices(cols, blocks)]
        offsets = framework.from_numpy(offsets_of(rows, num_block_rows), blocks)
        cols = framework.from_numpy(cols.astype(np.int32), blocks)
        return cls._make(values, Structure(shape, (block_rows, block_cols), offsets, cols))

    @classmethod
    def from_torch(cls, tensor: Any, *, check: bool = True) -> BSRMatrix:
        """A `torch.sparse_bsr` tensor of two axes; its values are not copied.

        Raises:
            TypeError: another layout.
            ValueError: batches or values with more axes.
        """
        import torch

        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_bsr:
            found = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise TypeError(f"tensor: expected a torch.sparse_bsr tensor, got {found}")
        if tensor.ndim != 2:
            raise ValueError(f"tensor: expected two axes, got shape {tuple(tensor.shape)}")
        shape = tuple(tensor.shape)
        return cls(tensor.values(), tensor.crow_indices(), tensor.col_indices(), shape, check=check)

    @classmethod
    def from_scipy(cls, matrix: Any, *, check: bool = True) -> BSRMatrix:
        """A `scipy.sparse.bsr_array` or `bsr_matrix` of float32; its values are not copied.

        Raises:
            TypeError: another format or dtype.
            ValueError: a block listed twice.
        """
        if getattr(matrix, "format", None) != "bsr":
            raise TypeError(f"matrix: expected a scipy.sparse.bsr_array, got {type(matrix).__name__}")
        nnz = int(matrix.indptr[-1])  # SciPy may reserve more than it uses
        return cls(matrix.data[:nnz], matrix.indptr, matrix.indices[:nnz], matrix.shape, check=check)

    @property
    def shape(self) -> tuple[int, int]:
        return self._structure.shape

    @property
    def block_shape(self) -> tuple[int, int]:
        """(bm, bk)."""
        return self._structure.block_shape

    @property
    def row_offsets(self) -> Array:
        return self._structure.row_offsets

    @property
    def col_indices(self) -> Array:
        return self._structure.col_indices

    @property
    def value_indices(self) -> Array | None:
        return self._structure.value_indices

    @property
    def nnz(self) -> int:
        """Stored blocks."""
        return self.values.shape[0]

    @property
    def density(self) -> float:
        """Stored blocks / all blocks."""
        return self.nnz / max(1, self._structure.num_block_rows * self._structure.num_block_cols)

    @property
    def dtype(self) -> str:
        """'float16', 'bfloat16' or 'float32'."""
        return frameworks.of(self.values).dtype(self.values)

    @property
    def device(self) -> str:
        """'cpu' or 'cuda:INDEX'."""
        return frameworks.of(self.values).device(self.values)

    @property
    def T(self) -> BSRMatrix:
        """The transpose, which shares the values (JAX, which has no views, copies them); `.T.T` is this matrix.

        Its structure is computed once, on the host: the first time that waits for a GPU.
        """
        found = self._origin if self._transpose is None else self._transpose()
        if found is None:
            swapped = self.values.swapaxes(1, 2)
            if self._original is None:
                found = self._make(swapped, self._structure.transposed, self._structure)
                found._origin, self._transpose = self, weakref.ref(found)
            else:
                found = self._make(swapped, self._original)
                self._origin, found._transpose = found, weakref.ref(self)
            found._views = self._views
        return found

    def with_values(self, values: Array) -> BSRMatrix:
        """A matrix of the same structure with other values.

        Args:
            values: the shape of this matrix's values, on its device; of any library and any dtype of a BSRMatrix

        Raises:
            TypeError, ValueError: other values.
        """
        values = _check_values(values)
        if tuple(values.shape) != tuple(self.values.shape):
            raise ValueError(f"values: expected shape {tuple(self.values.shape)}, got {tuple(values.shape)}")
        check_device("values", values, self.values)
        return self._make(values, self._structure, self._original)

    def to(self, target: Any) -> BSRMatrix:
        """The matrix in the library and on the device of an array, or on a named device ('cuda:0').

        Arrays that are there already are shared, not copied.

        Raises:
            ValueError: the arrays cannot live on that device.
        """
        if self._original is not None:
            return self.T.to(target).T
        return self._make(frameworks.move(self.values, target), self._structure.moved(target))

    def to_dense(self) -> Array:
        """(rows, cols) of the values' library and dtype, on their device; waits for it."""
        framework = frameworks.of(self.values)
        (block_rows, block_cols), structure = self.block_shape, self._structure
        shape = (structure.num_block_rows, block_rows, structure.num_block_cols, block_cols)
        dense = framework.put(framework.empty(shape, self.dtype, self.values), ..., 0)
        coordinates = np.stack(structure.coordinates())
        if self.value_indices is not None:  # the values in their own order, not copied
            coordinates[:, to_host(self.value_indices)] = coordinates.copy()
        rows, cols = (framework.indices(index, self.values) for index in coordinates)
        return framework.put(dense, (rows, slice(None), cols), self.values).reshape(self.shape)

    def to_torch(self) -> Any:
        """A `torch.sparse_bsr` tensor on the same device.

        The values are shared, unless their order must change: in a transpose, and where columns do not ascend.
        """
        import torch

        values, (rows, cols) = self.values, self._structure.coordinates()
        order = np.lexsort((cols, rows))
        in_order = bool((order[1:] > order[:-1]).all())
        if self.value_indices is not None or not in_order:
            framework = frameworks.of(values)
            source = order if self.value_indices is None else to_host(self.value_indices)[order]
            values = values[framework.indices(source, values)]
        if not isinstance(values, torch.Tensor):
            values = torch.from_dlpack(values)
        offsets = frameworks.move(self.row_offsets, values)
        columns = torch.as_tensor(cols[order], device=values.device)
        return torch.sparse_bsr_tensor(offsets, columns, values, self.shape, check_invariants=False)

    def to_scipy(self) -> Any:
        """A `scipy.sparse.bsr_array`, in host memory; there the values are shared, except those of a transpose.

        Raises:
            TypeError: float16 and bfloat16, which SciPy does not have.
        """
        from scipy.sparse import bsr_array

        if self.dtype != "float32":
            raise TypeError(f"values: expected float32, the dtype that SciPy has too, got {self.dtype}")
        values = to_host(self.values)
        if self.value_indices is not None:
            values = values[to_host(self.value_indices)]
        return bsr_array((values, to_host(self.col_indices), to_host(self.row_offsets)), shape=self.shape)

    def __repr__(self) -> str:
        rows, cols = self.shape
        block_rows, block_cols = self.block_shape
        blocks = self._structure.num_block_rows * self._structure.num_block_cols
        return (
            f"BSRMatrix({rows} x {cols}, blocks {block_rows}x{block_cols}, {self.nnz} of {blocks} blocks "
            f"({self.density:.1%}), {self.dtype}, {self.device})"
        )

    def _view(self, values: Array | None = None) -> Any:
        """The `_core.BsrMatrixView` that the kernels read; of other values, laid out as `self.values`, if given."""
        transposed = self._original is not None
        if values is None and transposed in self._views:
            return self._views[transposed]
        from . import _core

        def export(array: Array | None) -> Any:
            return None if array is None else frameworks.of(array).export(array)

        view = _core.BsrMatrixView(
            rows=self.shape[0],
            cols=self.shape[1],
            values=export(self.values if values is None else values),
            row_offsets=export(self.row_offsets),
            col_indices=export(self.col_indices),
            value_indices=export(self.value_indices),
        )
        if values is None:
            self._views[transposed] = view
        return view

    def _plan(self, right: bool) -> Any:
        """The `_core.BsrPlan` of the structure as left or right operand, None where no kernel uses one.

        Made on the GPU once for each structure, and waited for, since another stream may be the next to read it.
        """
        plans = self._structure.plans
        if right not in plans:
            from . import _core

            view, plan = self._view(), None
            size = _core.bsr_plan_bytes(matrix=view, right=right)
            if size > 0:
                framework = frameworks.of(self.row_offsets)
                memory = framework.empty((size,), "uint8", self.row_offsets)
                stream = framework.stream(memory)
                plan = _core.BsrPlan(matrix=view, right=right, memory=framework.export(memory), stream=stream)
            plans[right] = plan
        return plans.get(right)


def prune(dense: Array, block_shape: tuple[int, int], density: float) -> BSRMatrix:
    """The blocks of a dense matrix of largest Frobenius norm.

    Args:
        dense: float16, bfloat16 or float32 (rows, cols), multiples of block_shape
        block_shape: (bm, bk), each from 1 to 256
        density: from 0 to 1: round(density * number of blocks) blocks are kept; of equal ones those that come first

    The norms are computed in float32, a block with a NaN counts as the largest. The result is of dense's library and
    on its device; its structure is decided on the host.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it, what was expected and what was given.

    Source: one-shot magnitude pruning of blocks, Narang et al., Block-Sparse Recurrent Neural Networks
    (arXiv:1711.02782), with the norm for their maximum.
    """
    if not 0 <= density <= 1:
        raise ValueError(f"density: expected 0 to 1, got {density}")
    framework, blocks, shape = _blocks_of(dense, block_shape)
    squares = framework.contiguous(blocks, "float32")
    norms = framework.to_numpy((squares * squares).sum(3).sum(1)).reshape(-1)
    order = np.argsort(-np.where(np.isnan(norms), np.inf, norms), kind="stable")
    return BSRMatrix._of_blocks(framework, blocks, shape, np.sort(order[: round(density * len(order))]))


def _blocks_of(dense: Array, block_shape: tuple[int, int]) -> tuple[frameworks.Framework, Array, tuple[int, int]]:
    """The adapter of a dense matrix, its blocks (block rows, bm, block cols, bk), and its shape."""
    framework, dense = frameworks.native(dense, "dense")
    if framework.dtype(dense) not in _DTYPES:
        raise TypeError(f"dense: expected float16, bfloat16 or float32, got {framework.dtype(dense)}")
    if len(dense.shape) != 2:
        raise ValueError(f"dense: expected two axes, got shape {tuple(dense.shape)}")
    (rows, cols), (block_rows, block_cols) = check_shape(dense.shape, block_shape)
    blocks = dense.reshape(rows // block_rows, block_rows, cols // block_cols, block_cols)
    return framework, blocks, (rows, cols)


def _check_values(values: Array) -> Array:
    framework, values = frameworks.native(values, "values")
    if framework.dtype(values) not in _DTYPES:
        raise TypeError(f"values: expected float16, bfloat16 or float32, got {framework.dtype(values)}")
    if len(values.shape) != 3:
        raise ValueError(f"values: expected shape (nnz, bm, bk), got {tuple(values.shape)}")
    if values.shape[0] >= 2**31:
        raise ValueError(f"values: expected fewer than 2^31 blocks, got {values.shape[0]}")
    return values
