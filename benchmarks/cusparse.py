"""cuSPARSE's SpMM of BSR and Blocked-ELL matrices, through ctypes: PyTorch and CuPy offer neither in float16."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_void_p

import torch

from sparsek import BSRMatrix

_INDEX_32 = 2
_BASE_ZERO = 0
_COLUMN_ORDER, _ROW_ORDER = 1, 2
_DTYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType


@functools.cache
def library() -> ctypes.CDLL:
    """libcusparse: PyTorch's own, where it brings one. OSError where there is none."""
    pattern = os.path.join("nvidia", "*", "lib", "libcusparse.so.*")
    found = [path for folder in sys.path for path in glob.glob(os.path.join(folder, pattern))]
    names = [*found, "libcusparse.so.13", "libcusparse.so.12", "libcusparse.so"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            last = error
    raise last


def _call(name: str, *arguments) -> None:
    status = getattr(library(), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name}: cuSPARSE status {status}")


@functools.cache
def _handle() -> c_void_p:
    handle = c_void_p()
    _call("cusparseCreate", byref(handle))
    return handle


class _Product:
    """a b for one sparse a (rows, cols) and one dense b (cols, n); called, it returns a new array, in b's order."""

    def __init__(self, a: BSRMatrix, b: torch.Tensor) -> None:
        self._dtype = _DTYPES[b.dtype]
        self._a, self._b = c_void_p(), b
        self._by_rows = b.is_contiguous()
        self._rows = a.shape[0]
        self._describe(a)
        self._b_descriptor = self._dense(b)
        out = self._empty()
        size = c_size_t()
        self._spmm("cusparseSpMM_bufferSize", self._dense(out), byref(size))
        self._workspace = torch.empty(max(1, size.value), dtype=torch.uint8, device=b.device)

    def _describe(self, a: BSRMatrix) -> None:
        """Makes the descriptor of a; what it points to is kept in self."""
        raise NotImplementedError

    def _empty(self) -> torch.Tensor:
        cols = self._b.shape[1]
        return self._b.new_empty(self._rows, cols) if self._by_rows else self._b.new_empty(cols, self._rows).T

    def _dense(self, array: torch.Tensor) -> c_void_p:
        descriptor = c_void_p()
        rows, cols = (c_int64(side) for side in array.shape)
        order, axis = (_ROW_ORDER, 0) if self._by_rows else (_COLUMN_ORDER, 1)
        leading = c_int64(array.stride(axis))
        pointer = c_void_p(array.data_ptr())
        _call("cusparseCreateDnMat", byref(descriptor), rows, cols, leading, pointer, self._dtype, order)
        return descriptor

    def _spmm(self, name: str, out: c_void_p, last) -> None:
        one, zero = c_float(1), c_float(0)
        operation, compute, algorithm = c_int(0), c_int(_DTYPES[torch.float32]), c_int(0)
        operands = (byref(one), self._a, self._b_descriptor, byref(zero), out)
        _call(name, _handle(), operation, operation, *operands, compute, algorithm, last)

    def __call__(self) -> torch.Tensor:
        _call("cusparseSetStream", _handle(), c_void_p(torch.cuda.current_stream().cuda_stream))
        out = self._empty()
        descriptor = self._dense(out)
        self._spmm("cusparseSpMM", descriptor, c_void_p(self._workspace.data_ptr()))
        _call("cusparseDestroyDnMat", descriptor)
        return out


class Bsr(_Product):
    def _describe(self, a: BSRMatrix) -> None:
        block_rows, block_cols = a.block_shape
        self._kept = (a.row_offsets.int(), a.col_indices, a.values.contiguous())
        sizes = (a.shape[0] // block_rows, a.shape[1] // block_cols, a.nnz, block_rows, block_cols)
        pointers = (c_void_p(array.data_ptr()) for array in self._kept)
        kinds = (_INDEX_32, _INDEX_32, _BASE_ZERO, self._dtype, _ROW_ORDER)
        _call("cusparseCreateBsr", byref(self._a), *map(c_int64, sizes), *pointers, *kinds)


class BlockedEll(_Product):
    """Square blocks, equally many in each block row; the values are one row-major (rows, blocks in a row * block)."""

    def _describe(self, a: BSRMatrix) -> None:
        block, block_rows = a.block_shape[0], a.shape[0] // a.block_shape[0]
        in_row = a.nnz // block_rows
        values = a.values.reshape(block_rows, in_row, block, block).transpose(1, 2).contiguous()
        self._kept = (a.col_indices.contiguous(), values)
        sizes = (*a.shape, block, in_row * block)
        pointers = (c_void_p(array.data_ptr()) for array in self._kept)
        kinds = (_INDEX_32, _BASE_ZERO, self._dtype)
        _call("cusparseCreateBlockedEll", byref(self._a), *map(c_int64, sizes), *pointers, *kinds)
