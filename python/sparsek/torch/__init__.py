"""sparsek inside PyTorch programs: custom operators that torch.compile, torch.export and autograd know.

`attention` and `bsr_gemm` take what `sparsek.attention` and `sparsek.bsr_gemm` take, of torch tensors. Where nothing
is traced and no gradient is wanted they call those directly; else they go through the operators
`torch.ops.sparsek.attention` and `torch.ops.sparsek.bsr_gemm`. Importing this module registers the operators, and
BlockMask and BSRMatrix as pytrees.

Needs torch (2.4 or later): pip install 'sparsek[torch]'.
"""

from __future__ import annotations

from .._optional import require

require("torch", "torch", "sparsek.torch")

from . import _pytrees  # noqa: E402, F401
from ._attention import attention  # noqa: E402
from ._bsr_gemm import bsr_gemm  # noqa: E402

__all__ = ["attention", "bsr_gemm"]
