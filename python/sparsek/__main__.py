"""`python -m sparsek info`"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys

import sparsek

from . import _core


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def info() -> None:
    """Prints versions, GPUs, and each backend with the reason why it is not available."""
    cuda = _core.cuda_build_version()
    built = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}" if cuda else "CPU only"
    print(f"sparsek {sparsek.__version__} ({built}), Python {platform.python_version()}, {platform.machine()}")
    print("arrays: " + ", ".join(f"{name} {_version(name)}" for name in ("numpy", "torch", "jax")))
    print(f"CPU threads: {sparsek.num_threads()}")
    gpus = _core.gpus()
    print("GPUs:" if gpus else "GPUs: none")
    for index, name, capability in gpus:
        print(f"  cuda:{index}  {name}, sm_{capability}")
    print("backends, in order of preference:")
    for row in sparsek.backends():
        state = "available" if row.available else f"not available: {row.reason}"
        print(f"  {row.operation:<10} {row.name:<14} {state}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sparsek", description=sparsek.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, GPUs, backends and why each is or is not available")
    parser.parse_args(arguments)
    info()
    return 0


if __name__ == "__main__":
    sys.exit(main())
