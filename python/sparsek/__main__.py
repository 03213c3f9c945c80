"""`python -m sparsek info` and `mask`; from a checkout also `bench` and `tune`."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import runpy
import sys
from pathlib import Path

import sparsek

from . import _core, _mask_command


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def info() -> None:
    """Prints versions, GPUs and what serves each, and every backend with the reason why it is not available."""
    cuda = _core.cuda_build_version()
    built = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}" if cuda else "CPU only"
    print(f"sparsek {sparsek.__version__} ({built}), Python {platform.python_version()}, {platform.machine()}")
    print("arrays: " + ", ".join(f"{name} {_version(name)}" for name in ("numpy", "torch", "cupy", "jax")))
    print(f"CPU threads: {sparsek.num_threads()}")
    gpus = _core.gpus()
    print("GPUs:" if gpus else "GPUs: none")
    for index, name, capability, *served in gpus:
        attention, bsr_gemm = (backend or "no backend" for backend in served)
        print(f"  cuda:{index}  {name}, sm_{capability}; served by: attention {attention}, bsr_gemm {bsr_gemm}")
    print("backends, in order of preference:")
    for row in sparsek.backends():
        state = "available" if row.available else f"not available: {row.reason}"
        print(f"  {row.operation:<10} {row.name:<14} {state}")


def run_from_checkout(command: str, arguments: list[str]) -> int:
    """Runs benchmarks/COMMAND.py of the checkout that the current folder is in."""
    script = {"bench": "run.py", "tune": "tune.py"}[command]
    here = Path.cwd()
    for folder in (here, *here.parents):
        found = folder / "benchmarks" / script
        if found.is_file() and (folder / "python" / "sparsek").is_dir():
            sys.argv = [str(found), *arguments]
            sys.path.insert(0, str(found.parent))
            runpy.run_path(str(found), run_name="__main__")
            return 0
    print(f"{command}: expected to be called inside a checkout of sparsek (it has benchmarks/{script}), got {here}")
    return 2


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m sparsek", description=sparsek.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, GPUs, backends and why each is or is not available")
    _mask_command.add_parser(commands)
    # Their options are the scripts' own, --help among them.
    commands.add_parser("bench", help="the benchmark suite, from a checkout", add_help=False)
    commands.add_parser("tune", help="every configuration of one case, from a checkout", add_help=False)
    if arguments and arguments[0] in ("bench", "tune"):
        return run_from_checkout(arguments[0], arguments[1:])
    options = parser.parse_args(arguments)
    if options.command == "mask":
        return _mask_command.run(options)
    info()
    return 0


if __name__ == "__main__":
    sys.exit(main())
