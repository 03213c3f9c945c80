"""Hugging Face transformers with sparsek's attention: `register()`, then `attn_implementation="sparsek"`.

Needs transformers 5.6 or later and torch: pip install 'sparsek[transformers]'.
"""

from __future__ import annotations

import logging
import weakref
from functools import cache, partial
from typing import Any

from .._optional import require

require("torch", "transformers", "sparsek.integrations.transformers")
require("transformers", "transformers", "sparsek.integrations.transformers")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface  # noqa: E402

import sparsek.torch  # noqa: E402

from ..block_mask import BlockMask  # noqa: E402
from ._masks import Pattern, of_dense, pattern  # noqa: E402

__all__ = ["register"]

_say_once = cache(logging.getLogger("sparsek").warning)

# What models pass to an attention function that sparsek has no answer to, and what it is.
_REFUSED = {
    "softcap": "soft capping of the scores",
    "position_bias": "a bias added to the scores",
    "s_aux": "attention sinks",
    "head_mask": "a mask of heads",
    "cache": "a paged cache (continuous batching)",
}


def register(name: str = "sparsek", *, backend: str | None = None) -> None:
    """Makes `attn_implementation=name` known to transformers, for models that take custom attention functions.

    Causal and bidirectional attention, sliding windows, grouped queries, caches, padding masks, packed sequences and
    4-D bool masks work, with and without gradients. Padding masks become block masks: blocks of padding are skipped.

    A model raises NotImplementedError that names the feature for attention dropout (train with it set to 0), soft
    capping, score biases, attention sinks, head masks and paged caches; `output_attentions=True` gives None for the
    weights, as with sdpa, and says so once.

    Args:
        name: what models are told: AutoModel.from_pretrained(..., attn_implementation=name)
        backend: a name from `sparsek.backends()`, for every call; by default the first that takes the problem.

    Raises:
        ValueError: a backend that does not exist.
    """
    names = [row.name for row in sparsek.backends() if row.operation == "attention"]
    if backend is not None and backend not in names:
        raise ValueError(f"backend: expected one of {', '.join(names)}, got {backend!r}")
    AttentionInterface.register(name, partial(attention_forward, backend=backend))
    AttentionMaskInterface.register(name, pattern)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Pattern | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """For AttentionInterface: query (B, Hq, Sq, D), key and value (B, Hkv, Sk, D) to (B, Sq, Hq, D), and no weights."""
    if dropout:
        raise NotImplementedError(f"dropout: sparsek's attention has none, expected 0, got {dropout}")
    for feature, what in _REFUSED.items():
        if kwargs.get(feature) is not None:
            raise NotImplementedError(f"{feature}: sparsek's attention does not have {what}")
    if kwargs.get("output_attentions"):
        _say_once(
            "sparsek's attention gives no weights: output_attentions=True returns None for them. "
            'Use attn_implementation="eager" where they are needed.'
        )
    q_len, kv_len = query.shape[2], key.shape[2]
    if isinstance(attention_mask, Pattern):
        mask, window = attention_mask.mask, attention_mask.window
    elif attention_mask is None:
        # A model that asks for no mask says in its module whether it is causal, as sdpa reads it.
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = causal and q_len > 1
        left = None if sliding_window is None or not causal else sliding_window - 1
        mask, window = None, (left, 0 if causal else None)
    else:
        mask, window = _of_tensor(attention_mask, kv_len), (None, None)
    # (B, S, H, D) is the order of the result, which then needs no copy.
    out = sparsek.torch.attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask=mask,
        window=None if window == (None, None) else window,
        scale=scaling,
        backend=backend,
    )
    return out, None


_last: tuple[weakref.ref[Tensor], BlockMask] | None = None  # the layers of a model share one mask


def _of_tensor(given: Tensor, kv_len: int) -> BlockMask:
    """The block mask of a 4-D mask: bool, or a float one of 0 and very negative numbers."""
    global _last
    if given.ndim != 4:
        raise ValueError(
            "attention_mask: expected (batch, heads, q_len, kv_len) by the time it gets to the attention, "
            f"got shape {tuple(given.shape)}"
        )
    compiling = torch.compiler.is_compiling()
    if not compiling and _last is not None and _last[0]() is given and _last[1].kv_len == kv_len:
        return _last[1]
    seen = given
    if given.dtype != torch.bool:
        seen = given == 0
        erased = given <= torch.finfo(given.dtype).min / 2
        if compiling or not bool((seen | erased).all()):
            raise NotImplementedError(
                "attention_mask: sparsek's attention does not have biases, expected a bool mask, "
                f"or outside of torch.compile one of 0 and {torch.finfo(given.dtype).min}"
            )
    mask = of_dense(seen[..., :kv_len])
    if not compiling:
        _last = weakref.ref(given), mask
    return mask
