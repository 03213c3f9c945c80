"""Turns benchmarks/results/*.jsonl into benchmarks/REPORT.md and charts: `python benchmarks/report.py`.

Every sentence with a number comes from the results. What there is no data for is left out. Needs matplotlib only.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import charts
from report_data import (
    FAMILIES,
    ROOFLINE,
    Comparison,
    ResultsError,
    Row,
    by_family,
    impl_order,
    load,
    machine,
    slug,
    times,
    title,
)
from report_load import load_section
from report_text import (
    Ceilings,
    Speedup,
    family_table,
    intensity,
    measured_section,
    memory_section,
    memory_tables,
    metric,
    overall,
    speedup_section,
    speedup_table,
    speedups,
    summary,
)

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "report_template.md"


def panels_of(comparisons: list[Comparison], value, x_of) -> list[charts.Panel]:
    panels: dict[tuple, charts.Panel] = {}
    for row in (row for c in comparisons for row in c.rows):
        x = x_of(row)
        if x is None:
            continue
        variant = ", ".join(part for part in row.variant.split(", ") if not part.startswith("density"))
        column = f"head_dim {row.head_dim:g}" if row.head_dim else ""
        name = "\n".join(part for part in (column, variant) if part)
        panel = panels.setdefault((variant, column), charts.Panel(name, variant, column))
        y = value(row) if row.ms else None
        if y is not None:
            panel.lines[row.impl].append((x, y))
        elif row.out_of_memory:
            panel.failed[row.impl].append(x)
    return list(panels.values())


def family_chart(folder: Path, gpu: str, family: str, comparisons: list[Comparison]) -> Path | None:
    rows = [row for c in comparisons for row in c.rows]
    unit, _, value = metric(rows)
    by_length = any(row.length for row in rows)
    x_of = (lambda row: row.length) if by_length else (lambda row: row.number("density", "density"))
    return charts.grid(
        folder / f"{slug(gpu)}-{family.replace('/', '-')}.svg",
        panels_of(comparisons, value, x_of),
        title=f"{FAMILIES.get(family, family)}: {unit} by {'length' if by_length else 'density'}, {machine(gpu)}",
        x_label="length (tokens)" if by_length else "density",
        y_label=unit,
        order=impl_order(rows),
    )


def memory_chart(folder: Path, gpu: str, family: str, comparisons: list[Comparison]) -> Path | None:
    rows = [row for c in comparisons for row in c.rows]

    def mib(row: Row) -> float | None:
        extra = row.number("extra_bytes")
        return None if extra is None else extra / 2**20

    return charts.grid(
        folder / f"{slug(gpu)}-{family.replace('/', '-')}-memory.svg",
        panels_of(comparisons, mib, lambda row: row.length),
        title=f"{FAMILIES.get(family, family)}: extra memory by length, {machine(gpu)}",
        x_label="length (tokens)",
        y_label="MiB",
        order=impl_order(rows),
        y_scale="symlog",
    )


def speedup_chart(folder: Path, gpu: str, found: list[Speedup]) -> Path | None:
    panels: dict[str, charts.Panel] = {}
    expected: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for s in found:
        column = f"head_dim {s.sparse.head_dim:g}"
        panel = panels.setdefault(column, charts.Panel(column, "", column))
        panel.lines[s.mask].append((s.sparse.length, s.ratio))
        if s.estimated:
            panel.hollow.add((s.mask, s.sparse.length))
        if s.less_work:
            expected["", column, s.mask].append((s.sparse.length, s.less_work))
    for panel in panels.values():  # a single length is in the table
        panel.lines = {mask: points for mask, points in panel.lines.items() if len(points) > 1}
        expected = {key: points for key, points in expected.items() if key[1] != panel.column or key[2] in panel.lines}
    order = list(dict.fromkeys(s.mask for s in found if any(s.mask in panel.lines for panel in panels.values())))
    return charts.grid(
        folder / f"{slug(gpu)}-speed-up.svg",
        list(panels.values()),
        title=f"Speed-up of sparse attention (sparsek) over the fastest dense one, {machine(gpu)}",
        x_label="length (tokens)",
        y_label="times as fast as dense",
        order=order,
        looks=charts.numbered(order),
        line=(1, "as fast as dense"),
        y_scale="log",
        expected=expected,
    )


def roofline_chart(folder: Path, gpu: str, rows: list[Row]) -> Path | None:
    ceilings = Ceilings([row for row in rows if row.case.startswith("ceiling/") and row.ms])
    if not ceilings.matmul or not ceilings.copy:
        return None
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        x = intensity(row) if row.ms and row.comparable and not row.case.startswith("ceiling/") else None
        if x:
            points[row.impl].append((x, row.tflops))
    return charts.roofline(
        folder / f"{slug(gpu)}-roofline.svg",
        points,
        title=f"Roofline, {machine(gpu)}",
        tflops=ceilings.matmul.tflops,
        gbps=ceilings.copy.gbps,
        order=impl_order(rows),
    )


def results_of(gpu: str, rows: list[Row], families: dict[str, list[Comparison]], found: list[Speedup], draw) -> str:
    """The sections on one machine."""
    text = ""
    for family, comparisons in families.items():
        text += f"\n## {title(family)}\n\n{family_table(comparisons)}"
        text += draw(family_chart, gpu, family, comparisons, alt=title(family))
    if found:
        text += f"\n## Speed-up of sparse over dense\n\n{speedup_section(found)}"
        text += draw(speedup_chart, gpu, found, alt="Speed-up of sparse over dense")
        text += speedup_table(found)
    text += load_section(families)
    if any(row.number("extra_bytes") is not None for row in rows):
        text += f"\n## Memory\n\n{memory_section(rows)}"
        for family, comparisons in families.items():
            text += draw(memory_chart, gpu, family, comparisons, alt=f"Memory of {title(family)}")
        text += memory_tables(families)
    roofline = draw(roofline_chart, gpu, rows, alt="Roofline")
    return text + (ROOFLINE + roofline if roofline else "")


def build(rows: list[Row], out: Path) -> str:
    """Writes the charts and returns the report."""
    folder, drawn = out / "charts", set()

    def draw(chart: Callable[..., Path | None], gpu: str, *data, alt: str) -> str:
        path = chart(folder, gpu, *data)
        drawn.update({path} - {None})
        return f"\n![{alt} on {machine(gpu)}]({path.relative_to(out).as_posix()})\n" if path else ""

    families = by_family(rows)
    found = speedups(families)
    gpus = sorted({row.gpu for row in rows})
    totals = [
        overall(gpu, [c for (where, _), items in families.items() if where == gpu for c in items]) for gpu in gpus
    ]
    lines = [line for line in totals if line]
    lines += [summary(family, comparisons) for (_, family), comparisons in families.items()]
    for gpu, items in found.items():
        best = max(items, key=lambda s: s.ratio)
        lines.append(
            f"- **Sparse over dense** ({machine(gpu)}): at most {times(best.ratio)} times as fast as the fastest dense "
            f"attention of anyone ({best.label})."
        )
    results = ""
    for gpu in gpus:
        here = {family: comparisons for (where, family), comparisons in families.items() if where == gpu}
        heading = f"\n# Results on {machine(gpu)}\n" if here and len(gpus) > 1 else ""
        results += heading + results_of(gpu, [row for row in rows if row.gpu == gpu], here, found.get(gpu, []), draw)
    charts.remove_stale(folder, drawn)
    in_short = "## In short\n\n" + "\n".join(lines) + "\n" if lines else ""
    filled = {
        "summary": in_short if rows else "There are no results yet.\n",
        "measured": measured_section(rows, families) if rows else "",
        "results": results,
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in filled.items():
        text = text.replace("{{" + name + "}}\n", value and value.strip("\n") + "\n\n")
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the *.jsonl files")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for REPORT.md and charts/")
    options = parser.parse_args(arguments)
    try:
        rows = load(options.results)
    except ResultsError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    report = build(rows, options.out)
    (options.out / "REPORT.md").write_text(report, encoding="utf-8")
    print(f"wrote {options.out / 'REPORT.md'} from {len(rows)} measurements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
