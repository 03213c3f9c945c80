"""Lists of different lengths stored one after the other: offsets, rows and ranges."""

from __future__ import annotations

import numpy as np


def offsets_of(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """int64 (num_rows + 1): where each row starts among entries sorted by row."""
    offsets = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=offsets[1:])
    return offsets


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..."""
    begins = np.cumsum(counts) - counts
    return np.repeat(starts - begins, counts) + np.arange(counts.sum())
