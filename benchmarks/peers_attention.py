"""What a user would pick instead of `sparsek.attention`."""

from __future__ import annotations

import importlib

import torch
import torch.nn.functional as F
from peer import Package
from suite import Case
from timing import Call


class _Attention(Package):
    takes_masks = False

    def declines(self, case: Case) -> str | None:
        if case.op != "attention" or case.device != self.device:
            return "another operation" if case.op != "attention" else "another device"
        return None if self.takes_masks or not case.masked else "no such masks"


class Sdpa(_Attention):
    """torch.nn.functional.scaled_dot_product_attention, held to one backend."""

    module = "torch.nn.attention"

    def __init__(self, name: str, backend: str | None) -> None:
        self.name, self.backend = name, backend

    def prepare(self, case: Case, inputs) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        sets = [tuple(x.transpose(1, 2) for x in arrays) for arrays in inputs.sets]
        options = {"is_causal": case.causal, "enable_gqa": case.heads != case.num_kv_heads}
        if inputs.mask is not None:
            options["attn_mask"] = torch.from_numpy(inputs.mask.to_dense())

        def plain(i: int) -> torch.Tensor:
            return F.scaled_dot_product_attention(*sets[i], **options).transpose(1, 2)

        def held(i: int) -> torch.Tensor:
            with sdpa_kernel(backend):
                return plain(i)

        if self.backend is None:
            return plain
        backend = getattr(SDPBackend, self.backend)
        return held


class SdpaCpu(Sdpa):
    """With a mask: a dense one."""

    device = "cpu"
    takes_masks = True

    def __init__(self) -> None:
        super().__init__("torch/sdpa", None)


class Flex(_Attention):
    """FlexAttention, compiled for each shape."""

    name = "torch/flex"
    module = "torch.nn.attention.flex_attention"
    takes_masks = True

    def declines(self, case: Case) -> str | None:
        if case.op == "attention" and not case.masked:
            return "dense: see torch/sdpa"
        return super().declines(case)

    def prepare(self, case: Case, inputs) -> Call:
        import torch._dynamo
        from torch.nn.attention.flex_attention import flex_attention

        for limit in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit"):
            if hasattr(torch._dynamo.config, limit):  # names of different versions
                setattr(torch._dynamo.config, limit, 100_000)
        compiled = torch.compile(flex_attention, dynamic=False)
        mask = self._mask(case, inputs)
        options = {"block_mask": mask, "enable_gqa": case.heads != case.num_kv_heads}
        if case.blocks and min(case.q_block, case.kv_block) < 128:  # its tiles must divide the blocks
            options["kernel_options"] = {"BLOCK_M": case.q_block, "BLOCK_N": case.kv_block}
        sets = [tuple(x.transpose(1, 2) for x in arrays) for arrays in inputs.sets]
        return lambda i: compiled(*sets[i], **options).transpose(1, 2)

    @staticmethod
    def _mask(case: Case, inputs):
        from torch.nn.attention.flex_attention import BlockMask

        block = 128
        if case.blocks:
            counts, indices = _padded_lists(case, inputs)
            sides, rule = (case.q_block, case.kv_block), None
            lists = (torch.zeros_like(counts), torch.zeros_like(indices), counts, indices)
        else:
            sides = (block, block)
            lists, rule = _rule_lists(case, block)
        lengths = (case.queries, case.length)
        return BlockMask.from_kv_blocks(
            *lists, BLOCK_SIZE=sides, mask_mod=rule, seq_lengths=lengths, compute_q_blocks=False
        )


def _rule_lists(case: Case, block: int):
    """Padded lists of partial and of full blocks of a window or documents case, and the rule inside partial ones."""
    count = case.length // block
    if case.documents:
        lengths = torch.tensor(case.document_lengths)
        ids = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        last = ids.reshape(count, block)[:, -1]
        first = ids.reshape(count, block)[:, 0]
        ids = ids.cuda()
        listed = (first[None, :] <= last[:, None]) & (last[None, :] >= first[:, None])
        whole = (first == last)[:, None] & (first == last)[None, :] & (first[:, None] == first[None, :])

        if case.causal:

            def rule(b, h, q, k):
                return (ids[q] == ids[k]) & (k <= q)
        else:

            def rule(b, h, q, k):
                return ids[q] == ids[k]
    else:
        window = case.window
        near = torch.arange(count)[:, None] - torch.arange(count)[None, :]
        listed = near * block - (block - 1) <= window
        whole = near * block + block - 1 <= window

        def rule(b, h, q, k):
            return (k <= q) & (q - k <= window)

    if case.causal:
        order = torch.arange(count)[None, :] - torch.arange(count)[:, None]
        listed, whole = listed & (order <= 0), whole & (order < 0)
    return (*_padded(listed & ~whole), *_padded(listed & whole)), rule


def _padded(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts (1, 1, nq) and indices (1, 1, nq, nk) of the True blocks, these first."""
    order = (~blocks).to(torch.int8).sort(dim=-1, stable=True).indices
    return blocks.sum(-1).int()[None, None].cuda(), order.int()[None, None].contiguous().cuda()


class FlashAttention3(_Attention):
    name = "fa3"
    module = "flash_attn_interface"

    def declines(self, case: Case) -> str | None:
        if case.op == "attention" and (case.blocks or case.documents):
            return "no block masks"
        return None if case.op == "attention" and case.device == "cuda" else "another operation or device"

    def prepare(self, case: Case, inputs) -> Call:
        function = importlib.import_module(self.module).flash_attn_func
        window = (-1, -1) if case.window is None else (case.window, 0)
        # Its own defaults: of flash_attn_func, and of flash_attn_with_kvcache, which chooses the parts of the keys.
        num_splits = 0 if case.queries <= 4 else 1

        def call(i: int) -> torch.Tensor:
            out = function(*inputs.sets[i], causal=case.causal, window_size=window, num_splits=num_splits)
            return out[0] if isinstance(out, tuple) else out

        return call


class FlashAttention4(_Attention):
    """Its block lists are read by q tiles of 128, its kv tiles depend on head_dim."""

    name = "fa4"
    module = "flash_attn.cute.interface"
    takes_masks = True

    def declines(self, case: Case) -> str | None:
        if case.op == "attention" and (case.documents or (case.blocks and (case.q_block, case.kv_block) != (128, 128))):
            return "no such masks"
        return super().declines(case)

    def prepare(self, case: Case, inputs) -> Call:
        interface = importlib.import_module(self.module)
        if not case.blocks:
            window = (None, None) if case.window is None else (case.window, 0)
            return lambda i: _first(interface.flash_attn_func(*inputs.sets[i], causal=case.causal, window_size=window))
        from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

        counts, indices = _padded_lists(case, inputs)
        lists = BlockSparseTensorsTorch(
            mask_block_cnt=torch.zeros_like(counts),
            mask_block_idx=torch.zeros_like(indices),
            full_block_cnt=counts,
            full_block_idx=indices,
        )
        if "block_size" in lists._fields:
            lists = lists._replace(block_size=(128, 128))
        options = {"block_sparse_tensors": lists, "tile_mn": (128, 128)}
        return lambda i: _first(interface._flash_attn_fwd(*inputs.sets[i], **options))


class FlashInfer(_Attention):
    """BlockSparseAttentionWrapper has one list for all heads: here heads stand one after the other as one sequence."""

    name = "flashinfer"
    module = "flashinfer"
    takes_masks = True

    def declines(self, case: Case) -> str | None:
        if case.op == "attention" and (not case.blocks or case.heads != case.num_kv_heads):
            return "only top-k masks, without GQA"
        return super().declines(case)

    def prepare(self, case: Case, inputs) -> Call:
        import flashinfer

        num_lists = case.heads * (case.queries // case.q_block)
        base = torch.arange(case.heads, device="cuda", dtype=torch.int32) * (case.length // case.kv_block)
        indices = (inputs.indices[0] + base[:, None, None]).reshape(-1).int()
        indptr = torch.arange(num_lists + 1, device="cuda", dtype=torch.int32) * case.blocks
        workspace = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BlockSparseAttentionWrapper(workspace, backend="fa3")
        sizes = (case.heads * case.queries, case.heads * case.length, case.q_block, case.kv_block)
        wrapper.plan(indptr, indices, *sizes, 1, 1, case.head_dim, q_data_type=getattr(torch, case.dtype))
        sets = [tuple(x[0].transpose(0, 1).reshape(-1, 1, case.head_dim) for x in arrays) for arrays in inputs.sets]
        shape = (1, case.heads, case.queries, case.head_dim)
        return lambda i: wrapper.run(*sets[i]).view(shape).transpose(1, 2)


class CudnnBlockSparse(_Attention):
    """cudnn-frontend's block-sparse attention, bfloat16 only."""

    name = "bsa"
    module = "cudnn.block_sparse_attention"
    takes_masks = True
    tolerance = 0.06

    def declines(self, case: Case) -> str | None:
        if case.op == "attention" and (not case.blocks or (case.q_block, case.kv_block) not in ((128, 128), (64, 64))):
            return "only top-k masks of 64x64 and 128x128 blocks"
        return super().declines(case)

    def prepare(self, case: Case, inputs) -> Call:
        function = importlib.import_module(self.module).block_sparse_attention_forward
        sets = [tuple(x.transpose(1, 2).bfloat16().contiguous() for x in arrays) for arrays in inputs.sets]
        options = {"block_sparse_num": case.blocks, "sparse_block_size": case.q_block, "layout": "bhsd"}
        indices = _for_each_head(case, inputs.indices)
        return lambda i: function(*sets[i], indices, **options)["o_tensor"].transpose(1, 2)


def _for_each_head(case: Case, indices: torch.Tensor) -> torch.Tensor:
    """Lists of query heads, where a case has them for kv heads."""
    return indices.repeat_interleave(case.heads // indices.shape[1], 1)


def _padded_lists(case: Case, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts (1, Hq, nq) and indices (1, Hq, nq, nk) of a top-k mask."""
    indices = _for_each_head(case, inputs.indices)
    counts = torch.full(indices.shape[:3], case.blocks, dtype=torch.int32, device=indices.device)
    return counts, F.pad(indices, (0, case.length // case.kv_block - case.blocks))


def _first(out):
    return out[0] if isinstance(out, tuple) else out
