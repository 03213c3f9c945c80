"""Cases that every attention backend answers for, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sparsek import BlockMask


@dataclass(frozen=True)
class Case:
    name: str
    q_len: int
    kv_len: int
    batch: int = 2
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 64
    value_dim: int | None = None  # head_dim
    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    mask: Callable[[Case, np.random.Generator], BlockMask] | None = None
    scale: float | None = None
    layout: str = "bshd"

    def __str__(self) -> str:
        return self.name

    @property
    def dv(self) -> int:
        return self.value_dim or self.head_dim


def num_lists(case: Case, heads: int | str | None) -> int:
    """Of a batch: those of all query heads (None), of all kv heads ("kv"), or so many."""
    return {None: case.heads, "kv": case.kv_heads}.get(heads, heads)


def random_blocks(q_block, kv_block, density, *, batches=1, heads=None, partial=False):
    """A mask of random blocks; with `partial`, half of the blocks have random bits. `heads` as in num_lists."""

    def make(case: Case, rng: np.random.Generator) -> BlockMask:
        nq, nk = -(-case.q_len // q_block), -(-case.kv_len // kv_block)
        blocks = rng.random((batches, num_lists(case, heads), nq, nk)) < density
        dense = blocks.repeat(q_block, axis=2).repeat(kv_block, axis=3)[:, :, : case.q_len, : case.kv_len]
        if partial:
            noisy = (rng.random(blocks.shape) < 0.5).repeat(q_block, axis=2).repeat(kv_block, axis=3)
            dense = dense & ((rng.random(dense.shape) < 0.5) | ~noisy[:, :, : case.q_len, : case.kv_len])
        return BlockMask.from_dense(dense, q_block=q_block, kv_block=kv_block)

    return make


def padded_lists(q_block, kv_block, max_count, *, heads=None):
    """Padded lists of random length, the entries in random order, some lists empty. `heads` as in num_lists."""

    def make(case: Case, rng: np.random.Generator) -> BlockMask:
        nq, nk = -(-case.q_len // q_block), -(-case.kv_len // kv_block)
        indices = rng.random((case.batch, num_lists(case, heads), nq, nk)).argsort(axis=-1)[..., :max_count]
        counts = rng.integers(0, indices.shape[-1] + 1, indices.shape[:3], dtype=np.int32)
        return BlockMask.from_indices(
            indices.astype(np.int32), counts, q_len=case.q_len, kv_len=case.kv_len, q_block=q_block, kv_block=kv_block
        )

    return make


def documents(*lengths, block=64):
    return lambda case, rng: BlockMask.documents(lengths, q_block=block, kv_block=block)


def _lengths():
    for q_len, kv_len in [(1, 1), (1, 799), (113, 203), (239, 1), (64, 64), (127, 129), (300, 300), (1023, 1024)]:
        yield Case(f"dense-{q_len}x{kv_len}", q_len, kv_len)
        yield Case(f"causal-{q_len}x{kv_len}", q_len, kv_len, causal=True)


def _head_dims():
    for head_dim in (8, 32, 40, 64, 96, 128, 192, 256):
        yield Case(f"d{head_dim}", 130, 190, head_dim=head_dim, heads=2, kv_heads=1, causal=True)
    for head_dim, value_dim in ((192, 128), (64, 128), (128, 64), (32, 8)):
        yield Case(f"d{head_dim}-dv{value_dim}", 130, 190, head_dim=head_dim, value_dim=value_dim)
    for head_dim in (1, 5, 33, 100, 255):  # no multiple of eight: for the CPU
        yield Case(f"d{head_dim}", 70, 90, head_dim=head_dim, heads=2, kv_heads=2)


CASES = [
    *_lengths(),
    *_head_dims(),
    Case("long-row", 70, 4200, batch=1, heads=2, kv_heads=1),
    Case("row-256", 33, 256),
    Case("row-512", 33, 509),
    Case("row-2048", 33, 2048, batch=1),
    Case("gqa-4", 150, 200, heads=8, kv_heads=2),
    Case("mqa", 150, 200, heads=6, kv_heads=1, causal=True),
    Case("bhsd", 150, 200, heads=4, kv_heads=2, layout="bhsd", causal=True),
    Case("scale", 150, 200, scale=0.3),
    Case("scale-negative", 60, 70, scale=-0.2),
    Case("window-both", 200, 200, window=(20, 5)),
    Case("window-left", 200, 260, window=(30, None)),
    Case("window-right", 260, 200, window=(None, 3)),
    Case("window-causal", 300, 300, window=(64, 64), causal=True),
    Case("window-zero", 100, 100, window=(0, 0)),
    Case("rows-that-see-nothing", 300, 120, causal=True),
    Case("blocks-128", 500, 700, mask=random_blocks(128, 128, 0.4)),
    Case("blocks-64-partial", 300, 333, mask=random_blocks(64, 64, 0.5, partial=True)),
    Case("blocks-64x16", 200, 333, mask=random_blocks(64, 16, 0.3)),
    Case("blocks-64x32-causal", 333, 333, mask=random_blocks(64, 32, 0.5), causal=True),
    Case("blocks-1-list-for-all", 300, 300, mask=random_blocks(64, 64, 0.5, heads=1)),
    Case("blocks-per-batch", 300, 300, mask=random_blocks(64, 64, 0.5, batches=2)),
    Case("blocks-odd-partial", 101, 99, mask=random_blocks(7, 11, 0.5, partial=True)),
    Case("blocks-40-partial-window", 201, 199, mask=random_blocks(48, 40, 0.6, partial=True), window=(60, 10)),
    Case("blocks-1x1", 40, 37, mask=random_blocks(1, 1, 0.3)),
    Case("blocks-256-gqa", 600, 600, heads=4, kv_heads=2, mask=random_blocks(256, 128, 0.5)),
    Case("blocks-per-kv-head", 333, 400, heads=8, kv_heads=2, mask=random_blocks(64, 32, 0.4, heads=2)),
    Case(
        "blocks-per-kv-head-partial",
        *(300, 333),
        heads=6,
        kv_heads=3,
        mask=random_blocks(64, 64, 0.5, batches=2, heads=3, partial=True),
        causal=True,
    ),
    Case("blocks-none", 200, 200, mask=random_blocks(64, 64, 0.0)),
    Case("blocks-all", 200, 200, mask=random_blocks(64, 64, 1.0)),
    Case("padded-lists", 400, 500, mask=padded_lists(64, 32, 9)),
    Case("padded-lists-causal", 400, 400, mask=padded_lists(64, 64, 5), causal=True),
    Case("documents", 400, 400, mask=documents(100, 3, 200, 97), heads=2, kv_heads=2),
    Case("long-row-blocks", 130, 2600, batch=1, heads=2, kv_heads=2, mask=random_blocks(64, 64, 0.2, partial=True)),
]


def inputs(case: Case, dtype: torch.dtype, device: str, rng: np.random.Generator):
    """Unit-normal q, k, v as (B, S, H, D), in the memory order of the case's layout."""

    def normal(length, heads, dim):
        shape = (case.batch, length, heads, dim)
        if case.layout == "bhsd":
            shape = (case.batch, heads, length, dim)
        array = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device, dtype)
        return array.transpose(1, 2) if case.layout == "bhsd" else array

    return (
        normal(case.q_len, case.heads, case.head_dim),
        normal(case.kv_len, case.kv_heads, case.head_dim),
        normal(case.kv_len, case.kv_heads, case.dv),
    )


def make_mask(case: Case, rng: np.random.Generator) -> BlockMask | None:
    return None if case.mask is None else case.mask(case, rng)


def dense_mask(case: Case, mask: BlockMask | None) -> np.ndarray | None:
    """What the mask says of each query head, or of all: bool (B or 1, H or 1, Sq, Sk)."""
    if mask is None:
        return None
    dense = mask.to_dense()
    return dense.repeat(case.heads // case.kv_heads, axis=1) if mask.num_heads == case.kv_heads else dense
