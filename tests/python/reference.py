"""The oracle: the formulas themselves, in float64, knowing nothing of tiles or blocks."""

from __future__ import annotations

from typing import NamedTuple

import torch


class AttentionResult(NamedTuple):
    out: torch.Tensor  # (B, Sq, Hq, Dv)
    lse: torch.Tensor  # (B, Hq, Sq)
    weights: torch.Tensor  # (B, Hq, Sq, Sk)


def allowed_pairs(q_len, kv_len, *, mask=None, causal=False, window=None, device="cpu") -> torch.Tensor:
    """Which (query, key) pairs may see each other: bool (B or 1, H or 1, Sq, Sk)."""
    position = torch.arange(q_len, device=device)[:, None] + kv_len - q_len
    key = torch.arange(kv_len, device=device)[None, :]
    allowed = torch.ones(q_len, kv_len, dtype=torch.bool, device=device)
    left, right = window or (None, None)
    if causal:
        allowed &= key <= position
    if left is not None:
        allowed &= key >= position - left
    if right is not None:
        allowed &= key <= position + right
    allowed = allowed[None, None]
    if mask is not None:
        allowed = allowed & torch.as_tensor(mask, device=device)
    return allowed


def attention(q, k, v, allowed, scale=None, dtype=torch.float64) -> AttentionResult:
    """softmax(scale q k^T) v computed in `dtype`; q, k, v are (B, S, H, D) torch tensors."""
    group = q.shape[2] // max(k.shape[2], 1)
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    logits = (q @ k.transpose(2, 3)) * scale
    logits = logits.masked_fill(~allowed, float("-inf"))
    seen = allowed.any(dim=-1, keepdim=True).expand(*logits.shape[:3], 1)
    top = logits.amax(dim=-1, keepdim=True) if logits.shape[-1] else logits.new_zeros(*logits.shape[:3], 1)
    top = torch.where(seen, top, torch.zeros_like(top))
    exponentials = torch.exp(logits - top)
    total = exponentials.sum(dim=-1, keepdim=True)
    weights = torch.where(seen, exponentials / torch.where(seen, total, torch.ones_like(total)), 0.0)
    lse = torch.where(seen, top + torch.log(total), float("-inf")).squeeze(-1)
    return AttentionResult((weights.to(dtype) @ v).transpose(1, 2), lse, weights)


def matmul(a, b, alpha=1.0, c=None, beta=0.0, dtype=torch.float64) -> torch.Tensor:
    """alpha a b + beta c computed in `dtype`."""
    result = alpha * (a.to(dtype) @ b.to(dtype))
    return result if beta == 0 else result + beta * c.to(dtype)


def assert_close(actual, expected, lowprec, *, what="output", limit=None) -> None:
    """The rule for "correct": at most twice the error of the same formula in the input type, plus 1e-5.

    inf and NaN positions are compared first; `limit`, where given, bounds the error too, unless the formula in the
    input type itself is further off (an output between 2 and 4 of weights in float16 may be, by 2.04e-3 once).
    """
    actual, expected, lowprec = (torch.as_tensor(x).double().cpu() for x in (actual, expected, lowprec))
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    for name, test in (("NaN", torch.isnan), ("inf", torch.isposinf), ("-inf", torch.isneginf)):
        wrong = test(actual) != test(expected)
        assert not wrong.any(), f"{what}: {int(wrong.sum())} elements differ in being {name}, first at {_first(wrong)}"
    finite = torch.isfinite(expected)
    if not finite.any():
        return
    error = (actual - expected)[finite].abs()
    # Where the low-precision formula overflows it says nothing about what can be reached.
    lowprec_error = torch.nan_to_num((lowprec - expected)[finite].abs(), 0.0, 0.0, 0.0)
    bound = 2 * lowprec_error.max().item() + 1e-5
    if limit is not None:
        bound = min(bound, max(limit, lowprec_error.max().item()))
    assert error.max().item() <= bound, f"{what}: error {error.max().item():.3e}, expected at most {bound:.3e}"


def _first(where: torch.Tensor) -> tuple[int, ...]:
    return tuple(where.nonzero()[0].tolist())
