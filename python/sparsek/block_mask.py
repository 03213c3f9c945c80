"""Which blocks of keys each block of queries may attend to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _mask_arrays, _mask_draw, _mask_evaluated, _mask_flex, _mask_intervals, _mask_lists, frameworks
from ._arguments import integer
from ._mask_arrays import Arrays
from ._mask_held import MaskArrays
from ._mask_lists import Grid, Lists, make_grid
from ._optional import require

Array = Any


class BlockMask(MaskArrays):
    """A block-sparse attention mask: for each (batch, head, q block) a list of kv blocks.

    With nq = ceil(q_len / q_block) and nk = ceil(kv_len / kv_block), a query sees the keys of the
    kv blocks that its q block's list holds. A listed block is full, or partial: then a bitmap has
    one bit for each (query, key) pair. Memory grows with the number of listed blocks.

    Made by `from_indices`, `from_csr`, `from_dense`, `from_mask_mod`, `from_flex`, `causal`,
    `sliding_window` and `documents`; combined with `&` and `|`. Causal masks and windows are
    aligned to the bottom right: the last query and the last key face each other.

    The arrays, all of one library (NumPy, PyTorch, CuPy, JAX) and on one device:

    Attributes:
        indices: int32, the kv blocks of all lists
        offsets: int64 (num_lists + 1), in compressed lists; indices is then (num_indices)
        counts: int32 (num_batches, num_heads, nq), in padded lists; indices is then
            (num_batches, num_heads, nq, max_count)
        bitmap_indices: int32, the shape of indices: -1 for a full block, else its bitmap; or None
        bitmaps: int32 (num_bitmaps, q_block, ceil(kv_block / 32)); bit c % 32 of word c // 32
            says whether the row's query sees key c of the block; or None

    num_batches is that of q, or 1 for one list for all; num_heads that of q, that of k where a
    list serves the query heads that share a kv head, or 1. Methods that return values in host
    memory (`to_dense`, `num_pairs`, `density`, `repr`, drawings) wait for a GPU, and so do `&`,
    `|` and `transpose`, which compute on the host.
    """

    # Constructors from lists

    @classmethod
    def from_indices(
        cls,
        indices: Array,
        counts: Array | None = None,
        *,
        q_len: int,
        kv_len: int,
        q_block: int = 128,
        kv_block: int = 128,
        bitmaps: Array | None = None,
        bitmap_indices: Array | None = None,
        check: bool = True,
    ) -> BlockMask:
        """A mask of padded lists, each with room for the same number of kv blocks.

        Args:
            indices: integers (nq, max_count), (heads, nq, max_count) or
                (batches, heads, nq, max_count); batches is 1 or that of q, heads 1 or that of q or of k
            counts: integers, the shape of indices but its last axis: how many entries of each
                list are used; None: all
            bitmap_indices: integers, the shape of indices: -1 for a full block, else its bitmap
            bitmaps: int32 or uint32 (num_bitmaps, q_block, ceil(kv_block / 32))
            check: read the lists and refuse wrong ones, which waits for a GPU; with False only
                shapes and dtypes are checked, entries out of range count as absent, and a
                block listed twice gives undefined results

        Contiguous int32 arrays are not copied, so that lists changed in place later, on the GPU for
        example, are what the kernels read.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it, what was expected and what was given.
        """
        grid = make_grid(q_len, kv_len, q_block, kv_block)
        given = Arrays(indices, counts=counts, bitmap_indices=bitmap_indices, bitmaps=bitmaps)
        resolved = _mask_arrays.resolve(grid, given)
        return cls._checked(grid, *_mask_arrays.as_padded(grid, resolved), check)

    @classmethod
    def from_csr(
        cls,
        offsets: Array,
        indices: Array,
        *,
        q_len: int,
        kv_len: int,
        q_block: int = 128,
        kv_block: int = 128,
        num_batches: int = 1,
        num_heads: int = 1,
        bitmaps: Array | None = None,
        bitmap_indices: Array | None = None,
        check: bool = True,
    ) -> BlockMask:
        """A mask of compressed lists; list r is
        indices[offsets[r]] ... indices[offsets[r + 1] - 1].

        Args:
            offsets: integers (num_batches * num_heads * nq + 1) that do not decrease; list
                (batch * num_heads + head) * nq + q block is that of (batch, head, q block)
            indices: integers (num_indices): block indices from 0 to nk - 1
            bitmap_indices: integers, the shape of indices: -1 for a full block, else its bitmap
            bitmaps: int32 or uint32 (num_bitmaps, q_block, ceil(kv_block / 32))
            check: as in `from_indices`

        int64 offsets and int32 indices that are contiguous are not copied.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it, what was expected and what was given.
        """
        grid = make_grid(q_len, kv_len, q_block, kv_block)
        num_batches = integer("num_batches", num_batches)
        num_heads = integer("num_heads", num_heads)
        given = Arrays(indices, offsets, bitmap_indices=bitmap_indices, bitmaps=bitmaps)
        resolved = _mask_arrays.resolve(grid, given)
        _mask_arrays.check_compressed(grid, num_batches, num_heads, resolved)
        return cls._checked(grid, num_batches, num_heads, resolved, check)

    @classmethod
    def _checked(cls, grid: Grid, num_batches: int, num_heads: int, arrays: Arrays, check: bool) -> BlockMask:
        if check:
            _mask_arrays.check_lists(grid, num_batches, num_heads, arrays)
        return cls(grid, num_batches, num_heads, _mask_arrays.convert(arrays))

    @classmethod
    def _from_lists(cls, lists: Lists, like: Array | None = None) -> BlockMask:
        mask = cls(lists.grid, lists.num_batches, lists.num_heads, _mask_arrays.write(lists))
        return mask if like is None else mask.to(like)

    # Constructors from a rule

    @classmethod
    def from_dense(cls, mask: Array, *, q_block: int = 128, kv_block: int = 128) -> BlockMask:
        """A mask of the same pairs as a dense one: True where the query sees the key.

        Args:
            mask: bool (q_len, kv_len), (heads, q_len, kv_len) or (batches, heads, q_len, kv_len) of any
                library, on any device; the result's arrays are of that library, on that device

        Blocks without a True are not listed, blocks of True only are full, others get a bitmap.

        Raises:
            TypeError: another dtype.
            ValueError: another number of axes.
        """
        framework, mask = frameworks.native(mask, "mask")
        _mask_evaluated.check_bool("mask", mask, framework)
        shape = tuple(mask.shape)
        if not 2 <= len(shape) <= 4 or 0 in shape[:-2]:
            raise ValueError(
                "mask: expected shape (q_len, kv_len), (heads, q_len, kv_len) or "
                f"(batches, heads, q_len, kv_len), got {shape}"
            )
        grid = make_grid(*shape[-2:], q_block, kv_block)
        mask = mask.reshape((1,) * (4 - len(shape)) + shape)
        return cls._from_lists(_mask_evaluated.from_dense(grid, mask), mask)

    @classmethod
    def from_mask_mod(
        cls,
        mask_mod: Callable[[Array, Array, Array, Array], Array],
        *,
        batch: int = 1,
        heads: int = 1,
        q_len: int,
        kv_len: int,
        q_block: int = 128,
        kv_block: int = 128,
        like: Array | None = None,
        device: Any = None,
    ) -> BlockMask:
        """A mask from a function of indices, as FlexAttention's `create_block_mask` takes it.

        Args:
            mask_mod: mask_mod(b, h, q_idx, kv_idx) -> bool array: True where the query sees it.
                b and h are arrays without axes, q_idx is (queries, 1) and kv_idx (1, kv_len);
                the result must broadcast to (queries, kv_len).
            batch: how many to evaluate; 1 where the result does not depend on it
            heads: likewise
            q_len: queries, in tokens
            kv_len: keys
            q_block: queries in a block
            kv_block: keys in a block
            like: an array: the index arrays are of its library and on its device, and so is the
                result; None: NumPy, or torch where a device is given
            device: instead of like: a torch device, for torch tensors on it

        With torch, mask_mod is first called with bounds of the indices of each block, which tell the
        blocks that are full and empty for certain; of the others alone are the pairs evaluated, some
        blocks at a time, as q_idx (blocks, q_block, 1) and kv_idx (blocks, 1, kv_block). Memory is
        O(blocks + listed partial blocks' bitmaps), and never that of all pairs. What is assumed:
        mask_mod has no side effects and its result for a pair depends on that pair alone. Bounds are
        known of + - * abs // % >> and comparisons, bool logic, minimum, maximum, clamp, where, isin,
        and of integer or bool tables looked up at one of q_idx or kv_idx (`document[q_idx]`). With
        any other operation, as with other libraries than torch, every pair is evaluated: for
        libraries other than torch one stripe of q_block queries at a time, O(q_block * kv_len).

        Source: interval arithmetic, see `_mask_bounds.py`.

        Raises:
            TypeError, ValueError: a result that is no bool array or has another shape, or a length or a block that is
                no positive integer; both like and device.
            ImportError: device without torch: pip install 'sparsek[torch]'.
        """
        grid = make_grid(q_len, kv_len, q_block, kv_block)
        batch, heads = integer("batch", batch), integer("heads", heads)
        if device is not None:
            if like is not None:
                raise ValueError("device: expected None beside like, which has a device of its own")
            like = require("torch", "torch", "from_mask_mod with a device").empty(0, device=device)
        framework, like = frameworks.native(np.empty(0) if like is None else like, "like")
        if framework.name == "torch":
            from . import _mask_blocks

            with contextlib.suppress(_mask_blocks.NotElementwise):
                arrays = _mask_blocks.from_mask_mod(grid, mask_mod, batch, heads, like.device)
                return cls(grid, batch, heads, arrays)
        return cls._from_lists(_mask_evaluated.from_mask_mod(grid, mask_mod, batch, heads, like), like)

    @classmethod
    def from_flex(cls, flex_block_mask: Any) -> BlockMask:
        """A mask of the same pairs as `torch.nn.attention.flex_attention.BlockMask`.

        Its full blocks stay full; its mask_mod is evaluated inside its partial blocks only, which
        become bitmaps. The result's arrays are torch tensors on the device of its kv_indices, where
        mask_mod must be able to run.

        Raises:
            TypeError: something else.
        """
        return cls._from_lists(_mask_flex.from_flex(flex_block_mask), flex_block_mask.kv_indices)

    @classmethod
    def causal(cls, q_len: int, kv_len: int, *, q_block: int = 128, kv_block: int = 128) -> BlockMask:
        """Query i sees keys 0 ... i + kv_len - q_len; NumPy arrays.

        Where q_len > kv_len, the first q_len - kv_len queries see nothing.

        Raises:
            TypeError, ValueError: a length or a block is no integer, or too small.
        """
        return cls.sliding_window(q_len, kv_len, (None, 0), q_block=q_block, kv_block=kv_block)

    @classmethod
    def sliding_window(
        cls,
        q_len: int,
        kv_len: int,
        window: int | tuple[int | None, int | None],
        *,
        q_block: int = 128,
        kv_block: int = 128,
    ) -> BlockMask:
        """Query i sees keys p - left ... p + right, where p = i + kv_len - q_len; NumPy arrays.

        Args:
            window: (left, right), each a number of tokens or None for unbounded; a number w is (w, w).
                (left, 0) is the causal window of FlashAttention and Mistral.

        Raises:
            TypeError, ValueError: another window.
        """
        grid = make_grid(q_len, kv_len, q_block, kv_block)
        bounds = _mask_intervals.window_bounds(window)
        return cls._from_lists(_mask_intervals.from_band(grid, *bounds))

    @classmethod
    def documents(
        cls,
        lengths: Array | Sequence[int] | None = None,
        *,
        document_ids: Array | None = None,
        kv_lengths: Array | Sequence[int] | None = None,
        causal: bool = False,
        q_block: int = 128,
        kv_block: int = 128,
    ) -> BlockMask:
        """Documents packed one after the other: a query sees the keys of its own document.

        Args:
            lengths: integers (num_documents): the queries of each document; q_len is their sum
            kv_lengths: integers (num_documents): the keys of each document, where they differ
            document_ids: instead of lengths: integers (length) or (batches, length), the document of
                each token; tokens of one document stand together
            causal: aligned to the bottom right in each document, as FlashAttention's varlen does

        The arrays are beside lengths or document_ids, NumPy for a list.

        Raises:
            TypeError, ValueError: anything else, such as a document in two pieces.
        """
        sizes, like = _mask_intervals.document_lengths(lengths, document_ids, kv_lengths)
        q_len, kv_len = (int(side.sum()) for side in sizes[0])
        grid = make_grid(q_len, kv_len, q_block, kv_block)
        lists = _mask_intervals.from_documents(grid, sizes, causal)
        return cls._from_lists(lists, like)

    # Algebra

    def __and__(self, other: BlockMask) -> BlockMask:
        """Pairs in both masks; on the device of the first.

        Raises:
            TypeError: the other is no BlockMask.
            ValueError: lengths, blocks, batches or heads do not fit together.
        """
        return self._combined(other, _mask_lists.intersect)

    def __or__(self, other: BlockMask) -> BlockMask:
        """Pairs in either mask; on the device of the first.

        Raises:
            TypeError: the other is no BlockMask.
            ValueError: lengths, blocks, batches or heads do not fit together.
        """
        return self._combined(other, _mask_lists.union)

    def _combined(self, other: BlockMask, combine: Callable[[Lists, Lists], Lists]) -> BlockMask:
        if not isinstance(other, BlockMask):
            return NotImplemented
        a, b = _mask_lists.align(self._lists(), other._lists())
        return self._from_lists(combine(a, b), self.indices)

    def transpose(self) -> BlockMask:
        """The mask of (key, query) pairs: a list of q blocks for each kv block."""
        return self._from_lists(_mask_lists.transpose(self._lists()), self.indices)

    # What it holds

    def to_dense(self) -> np.ndarray:
        """NumPy bool (num_batches, num_heads, q_len, kv_len): True where the query sees the key."""
        return _mask_lists.to_dense(self._lists())

    def to(self, target: Any) -> BlockMask:
        """The mask in the library and on the device of an array, or on a named device ('cuda:0').

        Arrays that are there already are shared, not copied.

        Raises:
            ValueError: the arrays cannot live on that device.
        """
        moved = self._arrays.map(lambda array: frameworks.move(array, target))
        return BlockMask(self._grid, self.num_batches, self.num_heads, moved)

    def to_flex(self, device: Any = None) -> Any:
        """A `torch.nn.attention.flex_attention.BlockMask` of the same pairs, on a torch device (None: the mask's own).

        Full blocks stay full; its mask_mod reads the bitmaps of the others, and one int32 for each of all blocks:
        O(blocks) memory, as FlexAttention's own lists. FlexAttention's GPU kernels take q_block and kv_block of
        multiples of 128.

        Raises:
            ImportError: torch is missing: pip install 'sparsek[torch]'.
        """
        return _mask_flex.to_flex(self._lists(), self.device if device is None else device)

    # Pictures

    def __repr__(self) -> str:
        lists = self._lists()
        batches = f"batches {self.num_batches}, " if self.num_batches != 1 else ""
        device = f", {self.device}" if self.device != "cpu" else ""
        return (
            f"BlockMask(q {self.q_len} x kv {self.kv_len}, blocks {self.q_block}x{self.kv_block}, "
            f"{batches}heads {self.num_heads}, "
            f"{len(lists.rows)} of {lists.num_lists * self.num_kv_blocks} blocks "
            f"({self._density(lists):.1%}), {np.count_nonzero(lists.bits >= 0)} partial{device})"
        )

    def to_text(self, width: int = 64, batch: int = 0, head: int = 0) -> str:
        """A drawing, queries downwards and keys to the right, at most `width` characters wide.

        Each pair of characters is one or more blocks: █ where all their pairs are attended, ▓ ▒ ░
        where fewer are, · where none is.

        Raises:
            ValueError: no such batch or head, or a width below 2.
        """
        return _mask_draw.text(self._lists(), width, batch, head)

    def plot(self, ax: Any = None, *, batch: int = 0, head: int = 0) -> Any:
        """Draws the mask on matplotlib axes (new ones for None) and returns them.

        Raises:
            ImportError: matplotlib is missing: pip install 'sparsek[plot]'.
            ValueError: no such batch or head.
        """
        return _mask_draw.plot(self._lists(), ax, batch, head)
