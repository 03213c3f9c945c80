"""Tries every compiled configuration on a case: `python benchmarks/tune.py attention|bsr_gemm --case NAME`.

Prints them ranked by time and says which one sparsek selects by itself. Today each backend that takes the case is one
configuration.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import inputs
import peer
import suite
import torch
from measure import compare
from timing import Timer

OPERATIONS = ("attention", "bsr_gemm")


def configurations(case: suite.Case) -> dict[str, peer.Sparsek]:
    """Name and implementation of what is compiled for the case's device, in the order of selection."""
    return {row.backend: row for row in peer.own() if row.declines(case) is None}


def tune(case: suite.Case) -> tuple[list[tuple[float, str]], dict[str, str], str | None]:
    """(milliseconds, configuration) ranked, the reasons of those that decline, and the selected configuration."""
    timer, data = Timer(case.device), inputs.make(case)
    times, declined = [], {}
    selected = expected = None
    for name, configuration in configurations(case).items():
        call = configuration.prepare(case, data)
        try:
            out = call(0)
        except NotImplementedError as error:
            declined[name] = str(error).strip().splitlines()[-1].strip()
            continue
        if selected is None:  # selection takes the first that does not decline
            selected, expected = name, _values(out)
        elif problem := compare(case, data, out, expected, configuration.tolerance):
            declined[name] = f"wrong: {problem}"
            continue
        times.append((timer.milliseconds(call, len(data.sets), case.calls_in_graph), name))
    return sorted(times), declined, selected


def _values(out):
    return out if isinstance(out, torch.Tensor) else out.values


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/tune.py", description=__doc__.split("\n")[0])
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--case", required=True, help="a name of benchmarks/suite.py")
    options = parser.parse_args(arguments)
    known = {case.name: case for case in suite.CASES if case.op == options.operation}
    if options.case not in known:
        parser.error(f"case: {suite.unknown(options.case, list(known))}")
    case = known[options.case]
    if case.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"case: {case.name} needs a GPU; CPU cases: {', '.join(n for n in known if n.startswith('cpu/'))}")
    warnings.filterwarnings("ignore", "Sparse (BSR|CSR) tensor support is in beta")
    times, declined, selected = tune(case)
    for rank, (ms, name) in enumerate(times, 1):
        print(f"{rank:>3}  {name:<24} {ms:>10.4f} ms {case.flops / ms / 1e9:>8.2f} TFLOPS")
    for name, reason in declined.items():
        print(f"  -  {name:<24} {reason}")
    if not times:
        print(f"no compiled configuration takes {case.name}")
        return 1
    best = times[0][1]
    print(f"selected by default: {selected}" + ("" if best == selected else f"; {best} is faster here"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
