"""What a user would pick instead of `sparsek.bsr_gemm`."""

from __future__ import annotations

import torch
from cusparse import BlockedEll, Bsr, library
from peer import Package, first_line
from suite import Case
from timing import Call

from sparsek import BSRMatrix


class _Product(Package):
    products = ("dsd",)
    transposed = (None,)

    def declines(self, case: Case) -> str | None:
        if case.op != "bsr_gemm" or case.device != self.device:
            return "another operation" if case.op != "bsr_gemm" else "another device"
        if case.layer:
            return None  # all take it
        if case.product not in self.products:
            return f"no {case.product} product"
        return None if case.transposed in self.transposed else f"no transposed {case.transposed}"


class TorchBsr(_Product):
    """torch.sparse BSR by its Triton kernel."""

    name = "torch/bsr"
    module = "triton"

    def prepare(self, case: Case, inputs) -> Call:
        from torch.sparse._triton_ops import bsr_dense_addmm

        if case.layer:
            layers = [(x, weight.T.to_torch()) for x, weight in inputs.sets]
            return lambda i: torch.nn.functional.linear(*layers[i])
        sets = [(a.to_torch(), b) for a, b in inputs.sets]
        ignored = torch.empty(case.size, case.num_cols, dtype=getattr(torch, case.dtype), device="cuda")
        return lambda i: bsr_dense_addmm(ignored, *sets[i], beta=0)


class CublasDense(_Product):
    """The dense product of the same matrices; TFLOPS still count nonzero blocks only."""

    name = "cublas"
    module = "torch"
    products = ("dsd", "dds", "dss", "sdd")
    transposed = (None, "a", "b")

    def prepare(self, case: Case, inputs) -> Call:
        def dense(operand):
            return operand.to_dense() if isinstance(operand, BSRMatrix) else operand

        sets = [(dense(a), dense(b)) for a, b in inputs.sets]
        return lambda i: torch.matmul(*sets[i])


class TorchCpuMatmul(CublasDense):
    name = "torch/matmul"
    device = "cpu"


class CusparseBsr(_Product):
    name = "cusparse/bsr"
    make = Bsr

    def unavailable(self) -> str | None:
        if not torch.cuda.is_available():
            return "no GPU"
        try:
            library()
        except OSError as error:
            return first_line(error)
        return None

    def prepare(self, case: Case, inputs) -> Call:
        if case.layer:
            layers = [self.make(weight.T, x.T) for x, weight in inputs.sets]
            return lambda i: layers[i]().T
        products = [self.make(a, b) for a, b in inputs.sets]
        return lambda i: products[i]()


class CusparseBlockedEll(CusparseBsr):
    name = "cusparse/bell"
    make = BlockedEll

    def declines(self, case: Case) -> str | None:
        return super().declines(case) or ("rows of unequal length" if case.rows != "equal" else None)
