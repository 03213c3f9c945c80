"""Draws a mask: the share of attended pairs in the cells of a coarse grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._mask_lists import Lists, num_pairs

_SHADES = "·░▒▓█"  # none, up to a third, two thirds, less than all, all


def _shares(lists: Lists, batch: int, head: int, num_rows: int, num_cols: int) -> np.ndarray:
    """float64 (num_rows, num_cols): attended pairs / pairs; a cell holds one or more blocks."""
    grid = lists.grid
    nq, nk = grid.num_q_blocks, grid.num_kv_blocks
    lists = lists.select(lists.rows // max(1, nq) == batch * lists.num_heads + head)

    def sizes(length: int, block: int, count: int, cells: int) -> np.ndarray:
        tokens = np.minimum(length - np.arange(count) * block, block)
        return np.bincount(np.arange(count) * cells // max(1, count), tokens, minlength=cells)

    queries = sizes(grid.q_len, grid.q_block, nq, num_rows)
    keys = sizes(grid.kv_len, grid.kv_block, nk, num_cols)
    cells = lists.q_blocks * num_rows // max(1, nq) * num_cols + lists.cols * num_cols // max(1, nk)
    pairs = np.bincount(cells, num_pairs(lists), minlength=num_rows * num_cols)
    return pairs.reshape(num_rows, num_cols) / np.outer(queries, keys)


def _check_index(name: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise ValueError(f"{name}: expected 0 to {count - 1}, got {index}")


def text(lists: Lists, width: int, batch: int, head: int) -> str:
    _check_index("batch", batch, lists.num_batches)
    _check_index("head", head, lists.num_heads)
    if width < 2:
        raise ValueError(f"width: expected at least 2 characters, got {width}")
    nq, nk = lists.grid.num_q_blocks, lists.grid.num_kv_blocks
    # A cell is two characters wide, which makes it about square.
    num_cols = min(nk, width // 2)
    num_rows = min(nq, width, max(1, round(num_cols * nq / max(1, nk))))
    shares = _shares(lists, batch, head, num_rows, num_cols)
    levels = np.where(shares > 0, np.minimum(1 + np.floor(shares * 3), 3), 0).astype(int)
    levels[shares == 1] = 4
    lines = ["".join(2 * _SHADES[level] for level in row) for row in levels]
    return "\n".join(lines)


def plot(lists: Lists, ax: Any, batch: int, head: int) -> Any:
    _check_index("batch", batch, lists.num_batches)
    _check_index("head", head, lists.num_heads)
    try:
        import matplotlib.pyplot as plt
        from matplotlib.colors import PowerNorm
    except ImportError as error:
        raise ImportError("BlockMask.plot needs matplotlib: install it with pip install 'sparsek[plot]'") from error
    if ax is None:
        _, ax = plt.subplots()
    grid = lists.grid
    finest = 1024  # cells; a figure shows no more
    num_rows, num_cols = min(grid.num_q_blocks, finest), min(grid.num_kv_blocks, finest)
    shares = _shares(lists, batch, head, num_rows, num_cols)
    extent = (0, grid.kv_len, grid.q_len, 0)
    norm = PowerNorm(0.3, vmin=0, vmax=1)  # few pairs are to be seen too
    ax.imshow(shares, cmap="Blues", norm=norm, extent=extent, interpolation="nearest")
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    return ax
