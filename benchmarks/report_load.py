"""The report's section on long loads, under which the power limit lowers the clock."""

from __future__ import annotations

from report_data import DASH, Comparison, Row, amount, impl_order, times
from report_text import table_of

INTRODUCTION = """
## Under load

The figures above are of the first moments of a load. Where it goes on, the chip comes to the limit of its power, its
clock goes down, and what computes at full speed becomes slower. In TFLOPS, first as above, then under load; **bold** is
the fastest under load, and the last column compares sparsek and the fastest peer there.

"""


def load_ms(row: Row) -> float | None:
    return row.number("load_ms") if row.ms else None


def load_section(families: dict[str, list[Comparison]]) -> str:
    """Of the cases that were measured so."""
    lines = []
    known = [c for found in families.values() for c in found if any(load_ms(row) for row in c.rows)]
    impls = impl_order([row for c in known for row in c.rows if load_ms(row)])
    for c in known:
        found = {row.impl: row for row in c.rows if load_ms(row)}
        ours, peer = (_fastest(found, side) for side in (True, False))
        best = min((row for row in (ours, peer) if row), key=load_ms, default=None)
        ratio = times(load_ms(peer) / load_ms(ours)) if ours and peer else DASH
        lines.append([f"`{c.first.case}`", *(_cell(found.get(impl), best) for impl in impls), ratio])
    if not lines:
        return ""
    header = ["case", *(f"`{impl}`" for impl in impls), "sparsek / best peer"]
    return INTRODUCTION + table_of(header, lines, 1)


def _fastest(found: dict[str, Row], ours: bool) -> Row | None:
    return min((row for row in found.values() if row.comparable and row.ours == ours), key=load_ms, default=None)


def _cell(row: Row | None, best: Row | None) -> str:
    if row is None or not row.tflops:
        return DASH
    under_load = amount(row.tflops * row.ms / load_ms(row))
    return f"{amount(row.tflops)}, " + (f"**{under_load}**" if row is best else under_load)
