"""What the site has beside the pages of this folder: pictures of masks, and the benchmark report; for mkdocs.yml."""

from __future__ import annotations

import io
import re
from pathlib import Path

from matplotlib.figure import Figure
from mkdocs.structure.files import File

from sparsek import _mask_gallery as gallery

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

# File name: the mask's expression, see `python -m sparsek mask`.
PICTURES = {
    "causal": "causal",
    "window": "window",
    "documents": "documents",
    "causal-documents": "causal&documents",
    "window-global": "window|causal&global",
    "prefix": "prefix",
    "strided": "strided",
    "dilated": "dilated",
    "random": "random",
}


def picture(expression: str) -> str:
    figure = Figure(figsize=(2.6, 2.6), layout="constrained")
    axes = figure.subplots()
    gallery.make(expression, gallery.Sizes()).plot(axes)
    axes.set_xticks([0, 512, 1024])
    axes.set_yticks([0, 512, 1024])
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def report() -> str:
    """benchmarks/REPORT.md as one page: one title, and files that the site does not have are named, not linked."""
    first, *parts = re.split(r"^(?=# )", (BENCHMARKS / "REPORT.md").read_text(encoding="utf-8").lstrip(), flags=re.M)
    if not first.startswith("# "):
        first, *parts = parts
    text = first + "".join(re.sub(r"^(?=#)", "#", part, flags=re.M) for part in parts)
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!#|https?:)[^)]*\)", r"`\1`", text)


def on_files(files, config):
    for name, expression in PICTURES.items():
        files.append(File.generated(config, f"pictures/{name}.svg", content=picture(expression)))
    files.append(File.generated(config, "performance.md", content=report()))
    for chart in sorted((BENCHMARKS / "charts").glob("*.svg")):
        files.append(File.generated(config, f"charts/{chart.name}", abs_src_path=str(chart)))
    return files
