"""The peers that the suite knows, by name."""

from __future__ import annotations

import difflib

import peers_attention
import peers_bsr
from peer import Peer

PEERS: list[Peer] = [
    peers_attention.Sdpa("torch/sdpa-cudnn", "CUDNN_ATTENTION"),
    peers_attention.Sdpa("torch/sdpa-fa2", "FLASH_ATTENTION"),
    peers_attention.SdpaCpu(),
    peers_attention.Flex(),
    peers_attention.FlashAttention3(),
    peers_attention.FlashAttention4(),
    peers_attention.FlashInfer(),
    peers_attention.CudnnBlockSparse(),
    peers_bsr.TorchBsr(),
    peers_bsr.CusparseBsr(),
    peers_bsr.CusparseBlockedEll(),
    peers_bsr.CublasDense(),
    peers_bsr.TorchCpuMatmul(),
]


def select(names: str) -> list[Peer]:
    """'all', 'none', or names with commas between them. ValueError for an unknown one."""
    if names in ("all", "none"):
        return PEERS if names == "all" else []
    known = {peer.name: peer for peer in PEERS}
    chosen = []
    for name in names.split(","):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=4, cutoff=0.3)
            raise ValueError(
                f"peer: unknown name {name!r}; {'near matches' if near else 'known'}: {', '.join(near or known)}"
            )
        chosen.append(known[name])
    return chosen
