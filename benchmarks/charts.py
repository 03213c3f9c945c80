"""The charts of benchmarks/REPORT.md, as SVG files whose bytes depend on the data alone (and matplotlib's version)."""

from __future__ import annotations

import textwrap
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

CREATOR = "sparsek benchmarks/report.py"
STYLE = {
    "svg.hashsalt": "sparsek",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
}
# One colour and marker for each implementation, in every chart: the Okabe-Ito palette, then Tol's muted one.
# The blues are sparsek's. The marker tells apart what colour alone may not.
LOOKS = {
    "sparsek/sm90": ("#332288", "o"),
    "sparsek/wmma": ("#6699CC", "o"),
    "sparsek/simt": ("#56B4E9", "o"),
    "sparsek/cpu": ("#0072B2", "o"),
    "torch/sdpa-cudnn": ("#D55E00", "s"),
    "torch/sdpa-fa2": ("#E69F00", "^"),
    "torch/sdpa-efficient": ("#999933", "<"),
    "torch/sdpa": ("#E69F00", "^"),
    "torch/sdpa-unmasked": ("#999999", "v"),
    "torch/flex": ("#009E73", "D"),
    "torch/bsr": ("#CC79A7", "P"),
    "torch/matmul": ("#000000", "*"),
    "cublas": ("#000000", "*"),
    "cusparse/bell": ("#117733", "h"),
    "cusparse/bsr": ("#44AA99", "p"),
    "fa3": ("#AA4499", "X"),
    "fa4": ("#882255", "d"),
    "flashinfer": ("#117733", ">"),
    "bsa": ("#999933", "H"),
}
OTHERS = ["#882255", "#117733", "#999933", "#44AA99", "#AA4499", "#CC6677"]
OUR_OTHERS = ["#332288", "#4477AA", "#88CCEE"]
MASK_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#000000"]
MARKERS = "osD^vPX<>"


def look(impl: str) -> dict:
    """The fixed look of an implementation; an unknown one gets a colour from its name."""
    known = LOOKS.get(impl)
    seed = zlib.crc32(impl.encode())
    ours = impl.startswith("sparsek/")
    colours = OUR_OTHERS if ours else OTHERS
    colour, marker = known or (colours[seed % len(colours)], "o" if ours else MARKERS[1 + seed // 7 % 8])
    return {
        "color": colour,
        "marker": marker,
        "linewidth": 2.4 if ours else 1.3,
        "linestyle": "-" if ours else "--",
        "markersize": 6 if ours else 5,
    }


@dataclass
class Panel:
    """One pair of axes: lines by name, each a list of (x, y); `failed` are the x of runs without a result."""

    title: str
    row: str
    column: str
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    hollow: set[tuple[str, float]] = field(default_factory=set)  # (name, x) of points that are estimates

    def has_curve(self) -> bool:
        return any(len(points) > 1 for points in self.lines.values())


def short(value: float) -> str:
    """16384 -> 16K: lengths are powers of two more often than not."""
    value = float(value)
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if value >= size and (value / size).is_integer():
            return f"{value / size:.0f}{unit}"
    return f"{value:g}"


def write(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None, "Creator": CREATOR})
    return path


def _set_x(axes, positions: Iterable[float], label: str) -> None:
    axes.set_xscale("log", base=2)
    positions = sorted(set(positions))
    axes.set_xticks(positions)
    keep = -(-len(positions) // 7)  # at most seven labels; the last is always one of them
    labels = [short(x) if (len(positions) - 1 - i) % keep == 0 else "" for i, x in enumerate(positions)]
    axes.set_xticklabels(labels)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def _draw_failed(axes, panel: Panel, looks: Callable[[str], dict], at_top: bool) -> None:
    stacked: dict[float, int] = defaultdict(int)
    for name in sorted(panel.failed):
        for x in panel.failed[name]:
            height = 0.035 + 0.06 * stacked[x]
            height = 1 - height if at_top else height
            stacked[x] += 1
            axes.plot(
                [x],
                [height],
                transform=axes.get_xaxis_transform(),
                color=looks(name)["color"],
                marker="x",
                markersize=7,
                markeredgewidth=2,
                linestyle="none",
                clip_on=False,
            )


def grid(
    path: Path,
    panels: list[Panel],
    *,
    title: str,
    x_label: str,
    y_label: str,
    order: list[str],
    looks: Callable[[str], dict] = look,
    line: tuple[float, str] | None = None,
    y_scale: str = "linear",
    expected: dict[tuple[str, str, str], list[tuple[float, float]]] | None = None,
) -> Path | None:
    """Panels in rows and columns with one legend below; None where no panel has two points to join.

    `line` is a horizontal line with its name, `expected` dotted lines by (row, column, name).
    """
    panels = [panel for panel in panels if panel.has_curve()]
    if not panels:
        return None
    rows = list(dict.fromkeys(panel.row for panel in panels))
    columns = list(dict.fromkeys(panel.column for panel in panels))
    if len(columns) == 1 or len(panels) < len(rows) * len(columns) * 0.7:  # no use as a grid: wrap
        columns = [str(i) for i in range(min(3, len(panels)))]
        places = {i: divmod(i, len(columns)) for i in range(len(panels))}
        count = -(-len(panels) // len(columns))
    else:
        places = {i: (rows.index(panel.row), columns.index(panel.column)) for i, panel in enumerate(panels)}
        count = len(rows)
    names = {name for panel in panels for name in [*panel.lines, *panel.failed]}
    shown = [name for name in order if name in names]
    width = max(5.6, 3.5 * len(columns), 0.1 * len(title))
    entry = 0.7 + 0.072 * max(len(name) for name in [*shown, "if time followed work"])  # inches
    legend_columns = max(1, min(4, int(width / entry)))
    legend_rows = -(-(len(shown) + 3) // legend_columns)
    size = (width, 2.6 * count + 0.8 + 0.22 * legend_rows)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, fontsize=11, fontweight="bold")
        axes_grid = figure.subplots(count, len(columns), squeeze=False, sharey=True)
        for axes in axes_grid.flat:
            axes.set_visible(False)
        for i, panel in enumerate(panels):
            axes = axes_grid[places[i]]
            axes.set_visible(True)
            # As many letters as a panel is wide.
            axes.set_title("\n".join(textwrap.fill(line, 44) for line in panel.title.splitlines()))
            for name in shown:
                if name in panel.lines:
                    axes.plot(*zip(*sorted(panel.lines[name]), strict=True), **looks(name))
                    hollow = [(x, y) for x, y in panel.lines[name] if (name, x) in panel.hollow]
                    if hollow:
                        style = looks(name) | {"linestyle": "none", "markerfacecolor": "white"}
                        axes.plot(*zip(*hollow, strict=True), **style)
                points = (expected or {}).get((panel.row, panel.column, name))
                if points:
                    axes.plot(*zip(*sorted(points), strict=True), color=looks(name)["color"], linestyle=":", lw=1.2)
            if line:
                axes.axhline(line[0], color="#555555", linestyle=(0, (6, 2)), linewidth=1)
            positions = [x for points in panel.lines.values() for x, _ in points]
            _draw_failed(axes, panel, looks, at_top=y_scale == "symlog")  # memory: more than all
            _set_x(axes, positions + [x for xs in panel.failed.values() for x in xs], x_label)
            axes.tick_params(labelleft=True)
            axes.set_ylabel(y_label)
        highest = max(y for panel in panels for points in panel.lines.values() for _, y in points)
        _set_y(axes_grid[0, 0], y_scale, highest)
        handles = [Line2D([], [], label=name, **looks(name)) for name in shown]
        if expected:
            handles.append(Line2D([], [], color="#555555", linestyle=":", label="if time followed work"))
        if any(panel.hollow for panel in panels):
            handles.append(Line2D([], [], color="#555555", marker="o", mfc="white", ls="none", label="dense estimated"))
        if line:
            handles.append(Line2D([], [], color="#555555", linestyle=(0, (6, 2)), linewidth=1, label=line[1]))
        if any(panel.failed for panel in panels):
            handles.append(Line2D([], [], color="#555555", marker="x", ls="none", mew=2, label="out of memory"))
        figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns, frameon=False)
        return write(figure, path)


def _set_y(axes, scale: str, highest: float) -> None:
    """For all axes, which share theirs."""
    if scale == "linear":
        axes.set_ylim(bottom=0)
        return
    if scale == "symlog":
        axes.set_yscale("symlog", linthresh=1, linscale=0.5)
        axes.set_ylim(bottom=0, top=max(2, highest) * 1.6)
    else:
        axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def numbered(order: list[str]) -> Callable[[str], dict]:
    """Looks for lines that are no implementations, by their place in `order`."""

    def looks(name: str) -> dict:
        i = order.index(name)
        colour, marker = MASK_COLOURS[i % len(MASK_COLOURS)], MARKERS[i % len(MARKERS)]
        return {"color": colour, "marker": marker, "linewidth": 2, "linestyle": "-", "markersize": 5}

    return looks


def roofline(
    path: Path,
    points: dict[str, list[tuple[float, float]]],
    *,
    title: str,
    tflops: float,
    gbps: float,
    order: list[str],
) -> Path | None:
    """Points by implementation, each (floating-point operations a byte, TFLOPS), under the two measured ceilings."""
    points = {name: found for name, found in points.items() if found}
    if not points:
        return None
    ridge = 1e3 * tflops / gbps
    xs = [x for found in points.values() for x, _ in found] + [ridge]
    left, right = min(*xs, ridge / 4) / 2, max(xs) * 2
    with matplotlib.rc_context(STYLE):
        shown = [name for name in order if name in points]
        figure = Figure(figsize=(7.6, 4.6 + 0.22 * -(-(len(shown) + 2) // 3)), layout="constrained")
        figure.suptitle(title, fontsize=11, fontweight="bold")
        axes = figure.subplots()
        top = f"measured matrix product: {tflops:,.0f} TFLOPS"
        axes.plot([ridge, right], [tflops, tflops], color="#333333", linewidth=1.5, label=top)
        slope = f"measured copy: {gbps:,.0f} GB/s"
        axes.plot([left, ridge], [left * gbps / 1e3, tflops], color="#333333", ls="-.", linewidth=1.5, label=slope)
        for name in shown:
            style = look(name) | {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 0.5}
            axes.plot(*zip(*sorted(points[name]), strict=True), label=name, alpha=0.9, **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(top=tflops * 2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.set_xlabel("floating-point operations for each byte that must be moved")
        axes.set_ylabel("TFLOPS")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        return write(figure, path)


def remove_stale(folder: Path, kept: set[Path]) -> None:
    """Deletes the charts that an earlier report wrote and this one did not."""
    for path in sorted(folder.glob("*.svg")):
        if path not in kept and CREATOR in path.read_text(errors="replace")[:4000]:
            path.unlink()
