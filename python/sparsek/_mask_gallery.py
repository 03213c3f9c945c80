"""Masks by name, for `python -m sparsek mask` and the pictures of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .block_mask import BlockMask


@dataclass(frozen=True)
class Sizes:
    """What the masks are made of; each uses some of it. Lengths and distances count tokens."""

    q_len: int = 1024
    kv_len: int = 1024
    q_block: int = 32
    kv_block: int = 32
    left: int | None = 256
    right: int | None = 0
    stride: int = 128
    global_tokens: int = 32
    prefix: int = 256
    documents: tuple[int, ...] | None = None
    density: float = 0.25
    seed: int = 0

    @property
    def grid(self) -> dict[str, int]:
        return {"q_len": self.q_len, "kv_len": self.kv_len, **self.blocks}

    @property
    def blocks(self) -> dict[str, int]:
        return {"q_block": self.q_block, "kv_block": self.kv_block}


def _rule(sizes: Sizes, rule: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> BlockMask:
    """Of a rule on a query's position among the keys, and a key."""
    shift = sizes.kv_len - sizes.q_len
    return BlockMask.from_mask_mod(lambda b, h, q, kv: rule(q + shift, kv), **sizes.grid)


def full(sizes: Sizes) -> BlockMask:
    """every query sees every key"""
    return BlockMask.sliding_window(sizes.q_len, sizes.kv_len, (None, None), **sizes.blocks)


def causal(sizes: Sizes) -> BlockMask:
    """no key after the query's position"""
    return BlockMask.causal(sizes.q_len, sizes.kv_len, **sizes.blocks)


def window(sizes: Sizes) -> BlockMask:
    """keys from LEFT before to RIGHT after the position (--window)"""
    return BlockMask.sliding_window(sizes.q_len, sizes.kv_len, (sizes.left, sizes.right), **sizes.blocks)


def documents(sizes: Sizes) -> BlockMask:
    """packed documents that see themselves only (--documents)"""
    lengths = sizes.documents
    if lengths is None:
        parts = np.array([5, 2, 6, 3])
        ends = np.cumsum(parts) * sizes.q_len // parts.sum()
        lengths = tuple(int(x) for x in np.diff(ends, prepend=0))
    if sum(lengths) != sizes.q_len or sizes.q_len != sizes.kv_len:
        raise ValueError(
            f"documents: expected lengths that sum to q_len and kv_len, got {sum(lengths)} tokens for q_len "
            f"{sizes.q_len} and kv_len {sizes.kv_len}"
        )
    return BlockMask.documents(list(lengths), **sizes.blocks)


def dilated(sizes: Sizes) -> BlockMask:
    """every STRIDE-th key before and after the position (--stride)"""
    return _rule(sizes, lambda position, key: (position - key) % sizes.stride == 0)


def strided(sizes: Sizes) -> BlockMask:
    """the last key of each STRIDE, and the STRIDE keys up to the position (Sparse Transformer, arXiv:1904.10509)"""

    def rule(position: np.ndarray, key: np.ndarray) -> np.ndarray:
        distance = position - key
        return (distance >= 0) & ((distance < sizes.stride) | (key % sizes.stride == sizes.stride - 1))

    return _rule(sizes, rule)


def global_tokens(sizes: Sizes) -> BlockMask:
    """the first tokens see all and are seen by all (--global-tokens; Longformer, arXiv:2004.05150)"""
    return _rule(sizes, lambda position, key: (position < sizes.global_tokens) | (key < sizes.global_tokens))


def prefix(sizes: Sizes) -> BlockMask:
    """a prompt that sees itself in both directions, then causal (--prefix)"""
    return _rule(sizes, lambda position, key: (key <= position) | (key < sizes.prefix))


def random(sizes: Sizes) -> BlockMask:
    """whole blocks, each with probability DENSITY (--density, --seed)"""
    shape = -(-sizes.q_len // sizes.q_block), -(-sizes.kv_len // sizes.kv_block)
    chosen = np.random.default_rng(sizes.seed).random(shape) < sizes.density
    rows, cols = np.nonzero(chosen)
    offsets = np.searchsorted(rows, np.arange(shape[0] + 1))
    return BlockMask.from_csr(offsets, cols, **sizes.grid)


MASKS: dict[str, Callable[[Sizes], BlockMask]] = {
    "full": full,
    "causal": causal,
    "window": window,
    "documents": documents,
    "dilated": dilated,
    "strided": strided,
    "global": global_tokens,
    "prefix": prefix,
    "random": random,
}


def make(expression: str, sizes: Sizes) -> BlockMask:
    """The mask of a name, or of names joined by & (pairs in both) and | (in either); & binds first.

    Raises ValueError for a name that is not in `MASKS`.
    """

    def named(name: str) -> BlockMask:
        maker = MASKS.get(name.strip())
        if maker is None:
            raise ValueError(f"mask: expected one of {', '.join(MASKS)}, got {name.strip()!r}")
        return maker(sizes)

    result: BlockMask | None = None
    for term in expression.split("|"):
        names = term.split("&")
        product = named(names[0])
        for name in names[1:]:
            product = product & named(name)
        result = product if result is None else result | product
    assert result is not None
    return result
