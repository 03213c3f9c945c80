"""The report's sentences and tables; every number in them comes from the rows."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import charts
from report_data import DASH, IMPLS, Comparison, Row, amount, count, impl_order, listing, machine, times, title, words


def overall(gpu: str, comparisons: list[Comparison]) -> str | None:
    ratios = [round(c.ratio, 2) for c in comparisons if c.ratio is not None]
    if len(ratios) < 2:
        return None
    wins, losses = sum(r > 1 for r in ratios), sum(r < 1 for r in ratios)
    text = (
        f"- **All in all** ({machine(gpu)}): of {len(ratios)} cases that both sparsek and a peer ran, sparsek is the "
    )
    return text + f"fastest in {wins}, level in {len(ratios) - wins - losses} and slower in {losses}."


def summary(family: str, comparisons: list[Comparison]) -> str:
    """Where sparsek wins and loses in a family, in sentences."""
    ratios = [(c.ratio, c) for c in comparisons if c.ratio is not None]
    wins = [ratio for ratio, _ in ratios if round(ratio, 2) > 1]
    losses = [ratio for ratio, _ in ratios if round(ratio, 2) < 1]
    text = f"- **{title(family)}** ({machine(comparisons[0].first.gpu)}): "
    if not ratios:
        measured = sum(any(row.ms for row in c.rows) for c in comparisons)
        text += f"{count(measured, 'case')} measured, none of them with both sparsek and a peer."
    elif len(ratios) == 1:
        ratio, c = ratios[0]
        text += f"in the one case with a peer ({c.label}) {verdict(ratio, c)}."
    else:
        level = len(ratios) - len(wins) - len(losses)
        if len(ratios) in (len(wins), len(losses)):
            how = "faster than every peer measured" if wins else "slower than the fastest peer"
            text += f"sparsek is {how} in {'both' if len(ratios) == 2 else f'all {len(ratios)}'} cases. "
        else:
            text += f"sparsek is faster than every peer measured in {len(wins)} of {len(ratios)} cases, "
            text += (f"level in {level}, " if level else "") + f"slower than the fastest in {len(losses)}. "
        mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
        text += f"Its speed is {times(mean)} times the fastest peer's on (geometric) average."
        best, worst = max(ratios, key=lambda item: item[0]), min(ratios, key=lambda item: item[0])
        if best is not worst:
            text += f" At best ({best[1].label}) {verdict(*best)}; at worst ({worst[1].label}) {verdict(*worst)}."
    for ours, side in ((True, "sparsek"), (False, "every peer tried")):
        failed = [c for c in comparisons if c.fastest(not ours) and c.without(ours, lambda row: row.out_of_memory)]
        if failed:
            text += f" {side[0].upper() + side[1:] if not ours else side} ran out of memory in {cases_like(failed)}, "
            text += f"where {'a peer' if ours else 'sparsek'} gave a result."
    skipped = [c for c in comparisons if c.without(True, lambda row: row.skipped)]
    if skipped:
        text += f" sparsek was not run in {cases_like(skipped)}, as it would have taken too long."
    return text


def cases_like(comparisons: list[Comparison]) -> str:
    longest = max(comparisons, key=lambda c: c.first.length or 0)
    return f"{count(len(comparisons), 'case')} ({'such as ' if len(comparisons) > 1 else ''}{longest.label})"


def verdict(ratio: float, c: Comparison) -> str:
    peer = c.fastest(False).impl
    if round(ratio, 2) > 1:
        return f"it is {times(ratio)} times as fast as {peer}"
    if round(ratio, 2) == 1:
        return f"it is as fast as {peer}"
    return f"it takes {times(1 / ratio)} times as long as {peer}"


def microseconds_a_head(row: Row) -> float | None:
    return row.number("us_per_head") or (1e3 * row.ms / row.heads if row.ms and row.heads else None)


def metric(rows: list[Row]) -> tuple[str, str, Callable[[Row], float]]:
    """What a family's table shows: its unit, a word on it, and the value of a row."""
    measured = [row for row in rows if row.ms]
    if measured and measured[0].family == "attn/small" and all(microseconds_a_head(row) for row in measured):
        return "µs a head", "microseconds for each head, less is better", microseconds_a_head
    if measured and all(row.tflops for row in measured):
        if max(row.tflops for row in measured) < 2:
            return "GFLOPS", "GFLOPS (thousandths of a TFLOPS), more is better", lambda row: 1e3 * row.tflops
        return "TFLOPS", "TFLOPS, more is better", lambda row: row.tflops
    if measured and all(row.gbps for row in measured):
        return "GB/s", "GB/s, more is better", lambda row: row.gbps
    return "ms", "milliseconds, less is better", lambda row: row.ms


def table_of(header: list[str], lines: list[list[str]], text_columns: int) -> str:
    rule = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *lines]) + "\n"


def status(row: Row) -> str:
    """Why a row has no time, in a word or two: what comes before the details."""
    text = str(row.params.get("status") or "no result")
    return "out of memory" if row.out_of_memory else re.split(r"[:|\n]", text)[0].strip()


def family_table(comparisons: list[Comparison]) -> str:
    rows = [row for c in comparisons for row in c.rows]
    impls = impl_order(rows)
    _, unit, value = metric(rows)
    with_dim, with_length = any(row.head_dim for row in rows), any(row.length for row in rows)
    with_variant = any(row.variant for row in rows)
    header = ["head_dim"] * with_dim + ["length"] * with_length + ["case"] * with_variant
    text_columns = len(header)
    lines, notes = [], []
    for c in comparisons:
        row, best = c.first, c.fastest()
        cells = [f"{row.head_dim:g}" if row.head_dim else DASH] * with_dim
        cells += [charts.short(row.length) if row.length else DASH] * with_length
        cells += [row.variant or DASH] * with_variant
        found = {row.impl: row for row in c.rows}
        for impl in impls:
            row = found.get(impl)
            text = DASH if row is None else status(row) if not row.ms else amount(value(row))
            cells.append(f"**{text}**" if row is not None and row is best else text)
        ratio = DASH if c.ratio is None else times(c.ratio)
        if c.mismatch():
            ratio += " \\*"
            notes.append(f"\\* {c.label}: not the same problem: {'; '.join(c.mismatch())}.")
        lines.append([*cells, ratio])
    header += [f"`{impl}`" for impl in impls] + ["sparsek / best peer"]
    return "\n".join([f"In {unit}.\n", table_of(header, lines, text_columns), *(note + "\n" for note in notes)])


@dataclass(frozen=True)
class Speedup:
    """A sparse case beside dense attention of the same length, head_dim and causality; both for one head.

    Where dense attention was not measured at this length, its time follows from its TFLOPS at the nearest one.
    """

    sparse: Row
    dense: Row

    @property
    def estimated(self) -> bool:
        return self.dense.length != self.sparse.length

    @property
    def _dense_gflop(self) -> float:
        length = self.sparse.length
        pairs = length * (length + 1) / 2 if self.sparse.causal else length * length
        return 4e-9 * self.sparse.head_dim * pairs

    @property
    def ratio(self) -> float:
        dense_ms = self._dense_gflop / self.dense.tflops if self.estimated else self.dense.ms / self.dense.heads
        return dense_ms / (self.sparse.ms / self.sparse.heads)

    @property
    def less_work(self) -> float | None:
        return self._dense_gflop / (self.sparse.gflop / self.sparse.heads) if self.sparse.gflop else None

    @property
    def mask(self) -> str:
        return f"{'packed documents, ' * (self.sparse.family == 'attn/documents')}{self.sparse.variant}"

    @property
    def label(self) -> str:
        where = f"head_dim {self.sparse.head_dim:g}, length {charts.short(self.sparse.length)}, {self.mask}"
        return where + (", the dense time estimated" if self.estimated else "")


def speedups(families: dict[tuple[str, str], list[Comparison]]) -> dict[str, list[Speedup]]:
    """By GPU: sparsek's fastest on each sparse case over the fastest dense attention of anyone."""
    dense: dict[tuple, list[Row]] = defaultdict(list)
    for (gpu, family), comparisons in families.items():
        for row in (c.fastest() for c in comparisons if family == "attn/dense"):
            if row and row.heads and row.tflops and row.length and row.variant in (words("full"), "causal"):
                dense[gpu, row.head_dim, row.causal].append(row)
    found: dict[str, list[Speedup]] = defaultdict(list)
    for (gpu, family), comparisons in families.items():
        if family not in ("attn/topk", "attn/window", "attn/documents"):
            continue
        for row in (c.fastest(True) for c in comparisons):
            plain = (
                row
                and row.heads
                and row.length
                and row.head_dim
                and row.number("kv_heads") in (None, row.number("heads", "h"))
            )
            near = dense.get((gpu, row.head_dim, row.causal)) if plain else None
            if near:
                found[gpu].append(
                    Speedup(row, min(near, key=lambda d: (abs(math.log(d.length / row.length)), d.length)))
                )
    return found


def speedup_section(found: list[Speedup]) -> str:
    best, longest = max(found, key=lambda s: s.ratio), max(found, key=lambda s: (s.sparse.length, s.ratio))
    slower = [s for s in found if round(s.ratio, 2) < 1]
    text = (
        "How many times sooner a sparse attention of sparsek is done than the fastest dense attention of anyone, for "
    )
    text += "one head, causal beside causal. *Less work* is the speed-up that would be perfect.\n\n"
    text += f"The largest speed-up is {times(best.ratio)} ({best.label}). "
    if longest is not best:
        text += f"At the greatest length it is {times(longest.ratio)} ({longest.label}). "
    text += f"In {len(slower)} of {count(len(found), 'case')} the sparse attention takes longer than dense would.\n"
    estimated = sum(s.estimated for s in found)
    if estimated:
        text += (
            f"\nFor {estimated} of them dense attention was not measured at this length: its time is estimated from "
        )
        text += "its TFLOPS at the nearest length that was. A ~ in the table and a hollow marker in the chart say so.\n"
    return text


def speedup_table(found: list[Speedup]) -> str:
    lines = [
        [
            f"{s.sparse.head_dim:g}",
            charts.short(s.sparse.length),
            s.mask,
            f"`{s.sparse.impl}`",
            f"`{s.dense.impl}`" + (f" at {charts.short(s.dense.length)}" if s.estimated else ""),
            times(s.less_work) if s.less_work else DASH,
            "~ " * s.estimated + times(s.ratio),
        ]
        for s in found
    ]
    header = ["head_dim", "length", "mask", "sparse", "dense", "less work", "speed-up"]
    return folded(table_of(header, lines, 5))


def memory_section(rows: list[Row]) -> str:
    known = [row for row in rows if row.number("extra_bytes") is not None]
    text = "Memory that a call needs beyond its inputs and its output, in MiB; less is better.\n"
    ours = [row for row in known if row.ours]
    if ours:
        most = max(ours, key=lambda row: row.number("extra_bytes"))
        text += (
            f"\nsparsek's largest is {amount(most.number('extra_bytes') / 2**20)} MiB (`{most.case}`, `{most.impl}`)"
        )
        peers = [row for row in known if row.case == most.case and not row.ours]
        if peers:
            least = min(peers, key=lambda row: (row.number("extra_bytes"), row.impl))
            text += f"; there `{least.impl}` needs {amount(least.number('extra_bytes') / 2**20)} MiB"
        text += ".\n"
    return text


def memory_tables(families: dict[str, list[Comparison]]) -> str:
    """Of the cases where the memory of at least one implementation is known."""
    tables = []
    for family, comparisons in families.items():
        known = [c for c in comparisons if any(row.number("extra_bytes") is not None for row in c.rows)]
        impls = impl_order([row for c in known for row in c.rows])
        lines = []
        for c in known:
            found = {row.impl: row for row in c.rows}
            cells = []
            for row in (found.get(impl) for impl in impls):
                extra = row.number("extra_bytes") if row else None
                absent = DASH if row is None or row.ms else status(row)
                cells.append(absent if extra is None else amount(extra / 2**20))
            lines.append([f"`{c.first.case}`", *cells])
        if lines:
            tables.append(f"{title(family)}:\n\n{table_of(['case', *(f'`{impl}`' for impl in impls)], lines, 1)}")
    return folded("\n".join(tables))


def folded(table: str) -> str:
    return f"\n<details><summary>The numbers</summary>\n\n{table}\n</details>\n"


@dataclass(frozen=True)
class Ceilings:
    rows: list[Row]

    @property
    def matmul(self) -> Row | None:
        found = [row for row in self.rows if "matmul" in row.tokens and row.tflops]
        return max(found, key=lambda row: row.tflops, default=None)

    @property
    def copy(self) -> Row | None:
        found = [row for row in self.rows if "copy" in row.tokens and row.gbps]
        return max(found, key=lambda row: row.gbps, default=None)


def intensity(row: Row) -> float | None:
    """Floating-point operations for each byte, if each input is read once and each output written once."""
    if not row.tflops:
        return None
    if row.gbps:
        return 1e3 * row.tflops / row.gbps
    size = {"float32": 4, "float16": 2, "bfloat16": 2}.get(str(row.params.get("dtype", "float16")), 2)
    if row.tokens[0] == "attn":
        heads, batch = row.number("heads", "h"), row.number("batch")
        if not (heads and batch and row.length and row.head_dim):
            return None
        queries, kv_heads = row.number("q_len") or row.length, row.number("kv_heads") or heads
        moved = 2 * size * batch * row.head_dim * (queries * heads + row.length * kv_heads)
    elif row.family.startswith("bsr/") and all(row.number(name) for name in ("size", "nnz", "block")):
        side, columns = row.number("size"), row.number("cols") or row.number("size")
        dense, sparse = side * columns, row.number("nnz") * row.number("block") ** 2
        moved = size * (dense + 2 * sparse if row.family == "bsr/dss" else 2 * dense + sparse)
    else:
        return None
    return 1e9 * row.gflop / moved if row.gflop else None


def measured_section(rows: list[Row], families: dict[tuple[str, str], list[Comparison]]) -> str:
    text = "## What was measured, and on what\n\n"
    for gpu in sorted({row.gpu for row in rows}):
        mine = [row for row in rows if row.gpu == gpu]
        dates = sorted({row.date for row in mine})
        span = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
        commits = sorted({row.commit for row in mine})
        cases = len({row.case for row in mine if not row.case.startswith("ceiling/")})
        text += f"- **{machine(gpu)}**: {count(cases, 'case')}, {count(len(mine), 'measurement')}, {span}, sparsek at "
        text += f"{'commit' if len(commits) == 1 else 'commits'} {listing(f'`{commit}`' for commit in commits)}"
        text += " (`-dirty`: with changes that were not committed)" if any("-dirty" in c for c in commits) else ""
        failed = sum(1 for row in mine if not row.ms)
        text += f"; {failed} of them without a result" if failed else ""
        text += ".\n" + ceiling_sentences(mine)
        compared = [c for (where, _), found in families.items() if where == gpu for c in found if c.ratio]
        apart = [c for c in compared if c.fastest(True).date != c.fastest(False).date]
        if apart:
            text += f"  - In {count(len(apart), 'case')} sparsek and the peer were not measured on the same day: "
            text += "their ratio is less certain.\n"
    impls = [
        impl for impl in impl_order(rows) if any(r.impl == impl for r in rows if not r.case.startswith("ceiling/"))
    ]
    text += "\nImplementations:\n\n"
    for impl in impls:
        versions = sorted(
            {str(row.params["version"]) for row in rows if row.impl == impl and row.params.get("version")}
        )
        text += f"- `{impl}`" + (f": {IMPLS[impl]}" if impl in IMPLS else "")
        text += f" ({', '.join(versions)})\n" if versions else "\n"
    return text


def ceiling_sentences(rows: list[Row]) -> str:
    ceilings = Ceilings([row for row in rows if row.case.startswith("ceiling/") and row.ms])
    text = ""
    if ceilings.matmul:
        top = ceilings.matmul
        text += f"  - The ceiling of computing: a dense matrix product (`{top.case}`, {top.impl}) reached "
        text += f"{amount(top.tflops)} TFLOPS."
        ours = [row for row in rows if row.ours and row.tflops]
        if ours:
            best = max(ours, key=lambda row: row.tflops)
            text += f" The best of sparsek is {amount(best.tflops)} TFLOPS (`{best.case}`), "
            text += f"{amount(100 * best.tflops / top.tflops)} % of it."
        text += "\n"
    if ceilings.copy:
        text += f"  - The ceiling of moving data: a copy (`{ceilings.copy.case}`) read and wrote "
        text += f"{amount(ceilings.copy.gbps)} GB/s.\n"
    for row in ceilings.rows:
        if not {"matmul", "copy"} & set(row.tokens):
            shown = [f"{amount(row.tflops)} TFLOPS"] * bool(row.tflops) + [f"{amount(row.gbps)} GB/s"] * bool(row.gbps)
            text += f"  - `{row.case}`: {' and '.join(shown) or amount(row.ms) + ' ms'}.\n"
    return text
