"""Block-sparse attention and block-sparse matrix products, for any DLPack array."""

from ._core import __version__
from .attention import attention
from .block_mask import BlockMask
from .bsr_gemm import bsr_gemm
from .bsr_matrix import BSRMatrix, prune
from .system import Backend, backends, num_threads, set_num_threads

__all__ = [
    "BSRMatrix",
    "Backend",
    "BlockMask",
    "__version__",
    "attention",
    "backends",
    "bsr_gemm",
    "num_threads",
    "prune",
    "set_num_threads",
]
