"""A feed-forward layer with block-sparse weights: pruned from a dense one, then trained a little.

The layer multiplies only the blocks that pruning left. Training moves their values; which blocks there are stays.
Prints the error against the dense layer before and after training, and the bytes and time of each.
python examples/sparse_ffn.py; exits with 1 where training does not lower the error.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sparsek
from sparsek import BSRMatrix, prune
from sparsek.torch import bsr_gemm

TOKENS, WIDTH, HIDDEN, BLOCK, DENSITY, STEPS = 512, 256, 1024, 32, 0.25, 30
ON_GPU = any(row.operation == "bsr_gemm" and row.available and row.name != "cpu" for row in sparsek.backends())
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)


class BlockSparseLinear(nn.Module):
    """nn.Linear whose weight (out, in) has the blocks of a BSRMatrix only."""

    def __init__(self, weight: BSRMatrix, bias: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(weight.values.clone())
        self.bias = nn.Parameter(bias.clone())
        self.structure_t = weight.T  # (in, out); transposed once, here, and not in each step

    @property
    def weight_t(self) -> BSRMatrix:
        return self.structure_t.with_values(self.values.swapaxes(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """x: (tokens, in) to (tokens, out)."""
        return bsr_gemm(x, self.weight_t) + self.bias


def feed_forward() -> nn.Sequential:
    """Dense, of a trained layer's sort: most of its blocks matter little."""
    layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
    with torch.no_grad():
        for layer in (layers[0], layers[2]):
            sizes = torch.rand(layer.weight.shape[0] // BLOCK, layer.weight.shape[1] // BLOCK) ** 4
            layer.weight *= 4 * sizes.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return layers.to(DEVICE, DTYPE)


def sparse_version(dense: nn.Sequential) -> nn.Sequential:
    def pruned(layer: nn.Linear) -> BlockSparseLinear:
        return BlockSparseLinear(prune(layer.weight.detach(), (BLOCK, BLOCK), DENSITY), layer.bias.detach())

    return nn.Sequential(pruned(dense[0]), dense[1], pruned(dense[2]))


@torch.no_grad()
def milliseconds(model: nn.Module, x: Tensor) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        model(x).float().sum().item()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best


def nbytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def main() -> int:
    torch.manual_seed(0)
    dense = feed_forward()
    sparse = sparse_version(dense)
    optimizer = torch.optim.Adam(sparse.parameters(), lr=1e-3)
    errors = []
    for step in range(STEPS):
        x = torch.randn(TOKENS, WIDTH, device=DEVICE, dtype=DTYPE)
        with torch.no_grad():
            wanted = dense(x)
        loss = F.mse_loss(sparse(x).float(), wanted.float()) / wanted.float().var()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item())
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step:3}: error {errors[-1]:.4f} of the dense output's variance")
    for name, model in (("dense", dense), (f"{DENSITY:.0%} of blocks", sparse)):
        print(f"{name:>14}: {nbytes(model) / 1e6:.2f} MB, {milliseconds(model, x):.2f} ms for {TOKENS} tokens")
    return 0 if errors[-1] < errors[0] else 1


if __name__ == "__main__":
    sys.exit(main())
