"""Times two builds of sparsek in one run: `python benchmarks/pair.py BEFORE AFTER [CASE ...]`.

BEFORE and AFTER are NAME=FOLDER: the name of a commit, and a folder that holds the package `sparsek` as it was built
there. The default backend alone, in a process for each build, one after the other, GOES times; the better one counts.
Prints a row for each case, and with --out writes both builds' rows, as in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import suite

GOES = 2


def parse_build(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    path = Path(folder).resolve()
    if not name or not (path / "sparsek" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER with a package sparsek in FOLDER, got {text!r}")
    return name, path


def time_cases(names: list[str]) -> None:
    """Prints a row of results for each case, of the sparsek that this process imports."""
    import inputs
    import torch
    from measure import Row
    from peer import sparsek_call
    from timing import Ceilings, Timer

    timers: dict[str, Timer] = {}
    for case in suite.CASES:
        if case.name not in names or (case.device == "cuda" and not torch.cuda.is_available()):
            continue
        if case.device not in timers:
            timers[case.device] = Timer(case.device)
        timer = timers[case.device]
        data = inputs.make(case)
        milliseconds = timer.milliseconds(sparsek_call(case, data, None), len(data.sets), case.calls_in_graph)
        print(json.dumps(Row(case, "sparsek", milliseconds).to_json(Ceilings(None, None))), flush=True)


def rows_of(build: tuple[str, Path], names: list[str]) -> dict[str, dict]:
    name, folder = build
    environment = os.environ | {"PYTHONPATH": str(folder), "SPARSEK_COMMIT": name}
    command = [sys.executable, __file__, "--time", *names]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines()]
    return {row["case"]: row for row in rows}


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--time"]:
        time_cases(arguments[1:])
        return 0
    parser = argparse.ArgumentParser(prog="benchmarks/pair.py", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=parse_build, metavar="BEFORE")
    parser.add_argument("after", type=parse_build, metavar="AFTER")
    parser.add_argument("cases", nargs="*", help=f"{', '.join(suite.GROUPS)}, a case or a pattern; default: all")
    parser.add_argument("--out", type=Path, help="a .jsonl file, written anew")
    options = parser.parse_intermixed_args(arguments)  # options may stand between BEFORE, AFTER and the cases
    try:
        names = [case.name for case in suite.select(options.cases)]
    except ValueError as error:
        parser.error(str(error))
    best: dict[tuple[str, str], dict] = {}
    for _ in range(GOES):
        for build in (options.before, options.after):
            for case, row in rows_of(build, names).items():
                key = case, build[0]
                if key not in best or row["ms"] < best[key]["ms"]:
                    best[key] = row
    print(f"{'case':<48} {options.before[0]:>14} {options.after[0]:>14}  times as fast")
    for name in names:
        before, after = (best.get((name, build[0])) for build in (options.before, options.after))
        if before and after:
            print(f"{name:<48} {before['ms']:>11.4f} ms {after['ms']:>11.4f} ms  {before['ms'] / after['ms']:.3f}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("".join(json.dumps(best[key]) + "\n" for key in sorted(best)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
