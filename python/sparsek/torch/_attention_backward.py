"""The gradient of attention, unfused, for one stretch of queries after another."""

from __future__ import annotations

import torch
from torch import Tensor

from ..block_mask import BlockMask
from ._mask_rows import MaskRows

_STRETCH_BYTES = 1 << 27  # of one float32 array of scores; about five are alive


def attention_backward(
    grads: tuple[Tensor, Tensor],
    inputs: tuple[Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor],
    mask: BlockMask | None,
    causal: bool,
    window: tuple[int | None, int | None],
    scale: float | None,
    heads_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, contiguous and of their dtypes, computed in float32.

    grads are those of out and lse, outputs the forward's out and lse. With P = exp(S - lse):
    dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O) + dlse), dQ = scale dS K, dK = scale dS^T Q.
    """
    results = tuple(x.new_empty(x.shape) for x in inputs)
    with torch.autocast(inputs[0].device.type, enabled=False):
        _fill(results, grads, inputs, outputs, mask, causal, window, scale, heads_first)
    return results


def _fill(results, grads, inputs, outputs, mask, causal, window, scale, heads_first) -> None:
    def bhsd(x: Tensor) -> Tensor:
        return x if heads_first else x.transpose(1, 2)

    (q, k, v), (dq, dk, dv) = map(bhsd, inputs), map(bhsd, results)
    out, grad_out = bhsd(outputs[0]), bhsd(grads[0])
    lse, grad_lse = outputs[1], grads[1]
    batch, num_heads, q_len, head_dim = q.shape
    num_kv_heads, kv_len = k.shape[1:3]
    if 0 in (batch, num_heads, kv_len, q_len):
        for grad in (dq, dk, dv):
            grad.zero_()
        return
    scale = head_dim**-0.5 if scale is None else scale
    group = num_heads // num_kv_heads
    left, right = window
    if causal:
        right = 0 if right is None else min(right, 0)
    rows_of_mask = None if mask is None else MaskRows(mask)
    q_block = 1 if mask is None else mask.q_block
    stretch = _STRETCH_BYTES // (4 * batch * num_heads * kv_len * q_block)
    stretch = max(1, stretch) * q_block

    def heads_of_kv(x: Tensor) -> Tensor:
        """(B, Hq, rows, D) -> float32 (B, Hkv, group * rows, D): the queries that share a k/v head stand together."""
        return x.float().reshape(batch, num_kv_heads, group * x.shape[2], x.shape[3])

    key, value = k.float(), v.float()
    key_grad, value_grad = torch.zeros_like(key), torch.zeros_like(value)
    for first in range(0, q_len, stretch):
        stop = min(first + stretch, q_len)
        rows, diagonal = slice(first, stop), kv_len - q_len
        # Keys outside of the band of every query of the stretch have no part in it.
        begin = 0 if left is None else min(max(0, first + diagonal - left), kv_len)
        end = kv_len if right is None else min(max(begin, stop + diagonal + right), kv_len)
        keys = slice(begin, end)
        shape = (batch, num_kv_heads, group, stop - first, end - begin)

        position = torch.arange(first, stop, device=q.device)[:, None] + diagonal
        index = torch.arange(begin, end, device=q.device)
        seen = torch.ones(shape[3:], dtype=torch.bool, device=q.device)
        if left is not None:
            seen = seen & (index >= position - left)
        if right is not None:
            seen = seen & (index <= position + right)
        if rows_of_mask is not None:
            allowed = rows_of_mask.allowed(first // q_block, -(-stop // q_block))[..., keys]
            kv_heads = min(mask.num_heads, num_kv_heads)
            per_head = (kv_heads, mask.num_heads // kv_heads)
            seen = seen & allowed.reshape(mask.num_batches, *per_head, *shape[3:])

        queries, grad = heads_of_kv(q[:, :, rows]), heads_of_kv(grad_out[:, :, rows])
        scores = (queries @ key[:, :, keys].mT).mul_(scale).view(shape)
        row_lse = lse[:, :, rows].reshape(*shape[:4], 1)
        # A query that sees nothing has an lse of -inf: its probabilities are erased, not computed.
        weights = scores.sub_(row_lse).exp_().masked_fill_(~seen, 0.0)
        weights = weights.view(batch, num_kv_heads, group * shape[3], shape[4])
        value_grad[:, :, keys] += weights.mT @ grad

        row_grad = (grad_out[:, :, rows].float() * out[:, :, rows].float()).sum(-1) - grad_lse[:, :, rows]
        score_grad = (grad @ value[:, :, keys].mT).sub_(row_grad.reshape(batch, num_kv_heads, -1, 1))
        score_grad = score_grad.mul_(weights).mul_(scale)
        dq[:, :, rows] = (score_grad @ key[:, :, keys]).view(batch, num_heads, shape[3], head_dim)
        key_grad[:, :, keys] += score_grad.mT @ queries
    dk.copy_(key_grad)
    dv.copy_(value_grad)
