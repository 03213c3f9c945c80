"""sparsek.torch in CUDA graphs."""

from __future__ import annotations

import pytest
import reference
import torch
from torch_helpers import check_attention, normal, qkv, some_mask, sparse

import sparsek
import sparsek.torch


@pytest.mark.gpu
def test_cuda_graph_with_backward(rng):
    q, k, v = (x.requires_grad_() for x in qkv(rng, "cuda", torch.float16))
    mask = some_mask(rng, q.detach())

    def step():
        out = sparsek.torch.attention(q, k, v, mask=mask, causal=True)
        # Detached: autograd's nodes must not outlive the stream that they were made on.
        return (out.detach(), *torch.autograd.grad(out.float().square().sum(), (q, k, v)))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(2):
        with torch.no_grad():
            for x, fresh in zip((q, k, v), qkv(rng, "cuda", torch.float16), strict=True):
                x.copy_(fresh)
        graph.replay()
        torch.cuda.synchronize()
        for got, want in zip(captured, step(), strict=True):
            assert torch.equal(got, want)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_compiled_into_cuda_graphs(rng):
    weight_t = sparse(rng, 96, 64, device="cuda", dtype=torch.float16).T
    q, k, v = qkv(rng, "cuda", torch.float16)
    mask = some_mask(rng, q)
    x = normal(rng, 48, 64, device="cuda", dtype=torch.float16)
    sparsek.bsr_gemm(x, weight_t)  # its plan is made once, which waits for the GPU

    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def run(q, k, v, x):
        return sparsek.torch.attention(q, k, v, mask=mask), sparsek.torch.bsr_gemm(x, weight_t)

    for _ in range(4):
        out, product = run(q, k, v, x)
        check_attention(out.clone(), q, k, v, mask=mask)
        dense = weight_t.to_dense()
        lowprec = reference.matmul(x, dense, dtype=torch.float16)
        reference.assert_close(product.clone(), reference.matmul(x, dense), lowprec)
