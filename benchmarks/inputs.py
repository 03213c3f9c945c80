"""Random inputs of a case, the same for every impl, in as many sets as it takes not to read them from the cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
from suite import AttentionCase, BsrCase, Case

from sparsek import BlockMask, BSRMatrix

ROTATED_BYTES = 200 << 20  # of all sets: four times the L2 of an H200


class AttentionInputs(NamedTuple):
    sets: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # q (B, Sq, Hq, D), k and v (B, Sk, Hkv, D)
    indices: torch.Tensor | None  # of a top-k mask: int32 (1, Hq, q blocks, blocks), Hkv lists if the case says so
    mask: BlockMask | None  # on the inputs' device


class BsrInputs(NamedTuple):
    sets: list[tuple[torch.Tensor | BSRMatrix, torch.Tensor | BSRMatrix]]  # a and b
    pattern: BSRMatrix | None  # of "sdd"


def make(case: Case, seed: int = 0) -> AttentionInputs | BsrInputs:
    """Random normal operands and random blocks."""
    generator = torch.Generator(case.device).manual_seed(seed)
    return make_attention(case, generator) if case.op == "attention" else make_bsr(case, generator)


def make_attention(case: AttentionCase, generator: torch.Generator) -> AttentionInputs:
    q_shape = (case.batch, case.queries, case.heads, case.head_dim)
    kv_shape = (case.batch, case.length, case.num_kv_heads, case.head_dim)
    sets = [
        tuple(_normal(case, shape, generator) for shape in (q_shape, kv_shape, kv_shape))
        for _ in range(_num_sets(case))
    ]
    indices = random_blocks(case, generator) if case.blocks else None
    return AttentionInputs(sets, indices, make_mask(case, indices))


def make_mask(case: AttentionCase, indices: torch.Tensor | None) -> BlockMask | None:
    if case.blocks:
        sides = {"q_block": case.q_block, "kv_block": case.kv_block}
        return BlockMask.from_indices(indices, q_len=case.queries, kv_len=case.length, **sides, check=False)
    if case.documents:
        mask = BlockMask.documents(case.document_lengths, causal=case.causal)
        return mask.to(torch.empty(0, device=case.device))
    return None


def random_blocks(case: AttentionCase, generator: torch.Generator) -> torch.Tensor:
    """int32 (1, Hq or Hkv, q blocks, blocks): different kv blocks, in ascending order."""
    num_q_blocks, num_kv_blocks = -(-case.queries // case.q_block), -(-case.length // case.kv_block)
    heads = []
    for _ in range(case.num_kv_heads if case.kv_lists else case.heads):
        order = torch.rand(num_q_blocks, num_kv_blocks, generator=generator, device=case.device)
        heads.append(order.topk(case.blocks).indices.sort().values.int())
    return torch.stack(heads)[None]


def make_bsr(case: BsrCase, generator: torch.Generator) -> BsrInputs:
    wide = (case.size, case.num_cols)
    left = wide[::-1] if case.product == "dds" else (case.size, case.size)
    a_structure, b_structure = random_structure(case, generator), random_structure(case, generator)
    sets = []
    for _ in range(_num_sets(case)):
        a = _random_values(case, a_structure, generator) if case.product in ("dsd", "dss") else left
        b = _random_values(case, b_structure, generator) if case.product in ("dds", "dss") else wide
        sets.append(tuple(_normal(case, side, generator) if isinstance(side, tuple) else side for side in (a, b)))
    if case.layer:
        sets = [(x, weight.T) for x, weight in sets]
    elif case.transposed:
        index = "ab".index(case.transposed)
        sets = [(*pair[:index], _as_transpose(pair[index]), *pair[index + 1 :]) for pair in sets]
    pattern = _random_values(case, a_structure, generator) if case.product == "sdd" else None
    return BsrInputs(sets, pattern)


def random_structure(case: BsrCase, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """row_offsets and col_indices of a (size, size) matrix."""
    count = case.size // case.block
    order = torch.rand(count, count, generator=generator, device=case.device).argsort()
    lengths = torch.tensor(case.row_lengths, device=case.device)
    if case.rows != "equal":
        lengths = lengths[torch.randperm(count, generator=generator, device=case.device)]
    kept = torch.arange(count, device=case.device) < lengths[:, None]
    chosen = torch.zeros(count, count, dtype=torch.bool, device=case.device).scatter_(1, order, kept)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return offsets, chosen.nonzero()[:, 1].int()


def _as_transpose(matrix: torch.Tensor | BSRMatrix) -> torch.Tensor | BSRMatrix:
    """The same matrix, whose transpose lies in memory as matrices do."""
    if isinstance(matrix, torch.Tensor):
        return matrix.T.contiguous().T
    return BSRMatrix.from_dense(matrix.to_dense().T.contiguous(), matrix.values.shape[1:]).T


def _random_values(case: BsrCase, structure: tuple, generator: torch.Generator) -> BSRMatrix:
    values = _normal(case, (case.nnz, case.block, case.block), generator)
    return BSRMatrix(values, *structure, (case.size, case.size), check=False)


def _normal(case: Case, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=case.device, dtype=getattr(torch, case.dtype))


def _num_sets(case: Case) -> int:
    if case.device == "cpu":
        return 1
    return max(1, case.calls_in_graph, min(8, -(-ROTATED_BYTES // case.bytes)))
