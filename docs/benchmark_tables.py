"""Tables of ``benchmarks.md``: columns, and the ratios that come first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Value = float | str | None
Cell = Callable[[str], Value]
"""Returns the value of a row."""
Rows = Mapping[str, Mapping[str, Value]]
Sheets = Mapping[str, Mapping[str, Any]]
"""``rows`` and ``how`` by build."""
COMPILED = "compiled, "
TIMES = ("µs", "ms", "s")


class Ratio(NamedTuple):
    """A column with the ratio of ``ours`` to the best of ``peers``."""

    head: str
    ours: str
    peers: tuple[str, ...]


class Table(NamedTuple):
    """A table and its plot.

    :ivar unit: of all figures; a row with another unit has it in its name.
    :ivar ours: columns that depend on the build.
    :ivar others: columns that do not.
    :ivar plot: "bars", "stages", or "" for none.
    :ivar hidden: rows that are quoted only.
    :ivar unplotted: columns without bars.
    :ivar rows: beginnings of the names of the rows that are plotted, if not all.
    """

    title: str
    unit: str = ""
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    plot: str = "bars"
    hidden: tuple[str, ...] = ()
    unplotted: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def shown(self, sheets: Sheets) -> list[str]:
        """Return the columns with figures, but for ratios, that the table shows."""
        own = [each for name in self.ours for each in (name, COMPILED + name)]
        cells = cells_of(self, sheets)
        return [name for name in (*own, *self.others) if any(cells[name](row) is not None for row in row_names(sheets))]


def row_names(sheets: Sheets) -> list[str]:
    """Return the rows of all builds."""
    return list(dict.fromkeys(row for sheet in sheets.values() for row in sheet["rows"]))


def plotted_rows(table: Table, sheets: Sheets) -> list[str]:
    """Return the rows that the plot shows."""
    rows = [row for row in row_names(sheets) if row not in table.hidden]
    return [row for row in rows if row.startswith(table.rows)] if table.rows else rows


def is_less(table: Table, row: str) -> bool:
    """Return whether less is better: for times."""
    unit = table.unit.partition(" ")[0].rstrip(",")
    return row.rpartition(", ")[2] in TIMES or (unit in TIMES and "/s" not in row)


def value_of(sheets: Sheets, build: str, row: str, column: str) -> Value:
    """Return a figure, ``None`` without one."""
    value: Value = sheets.get(build, {}).get("rows", {}).get(row, {}).get(column)
    return value


def ratio_of(table: Table, ratio: Ratio, sheets: Sheets, build: str, row: str) -> float | None:
    """Return a ratio within one build, whose peers were measured beside it."""
    ours = value_of(sheets, build, row, ratio.ours)
    peers = [value_of(sheets, build, row, peer) for peer in ratio.peers]
    found = [peer for peer in peers if isinstance(peer, float | int) and peer]
    if not isinstance(ours, float | int) or not found:
        return None
    return ours / (min(found) if is_less(table, row) else max(found))


def cells_of(table: Table, sheets: Sheets) -> dict[str, Cell]:
    """Return all columns, ratios first, each with a function that returns the value of a row."""

    def ratio(which: Ratio, build: str) -> Cell:
        return lambda row: ratio_of(table, which, sheets, build, row)

    def measured(column: str, build: str) -> Cell:
        return lambda row: value_of(sheets, build, row, column)

    cells: dict[str, Cell] = {}
    for each in table.ratios:
        cells[each.head] = ratio(each, "interpreted")
        cells[COMPILED + each.head] = ratio(each, "compiled")
    for name in table.ours:
        cells[name] = measured(name, "interpreted")
        cells[COMPILED + name] = measured(name, "compiled")
    basis = "interpreted" if "interpreted" in sheets else "compiled"
    for name in (*table.others, *(column for each in sheets[basis]["rows"].values() for column in each)):
        cells.setdefault(name, measured(name, basis))
    return cells


def formatted(value: Value) -> str:
    """Return a figure with three digits, or all of an integer."""
    if value is None or isinstance(value, str):
        return value or ""
    for least, digits in ((100, 0), (9.995, 1), (0.0995, 2), (0.00995, 3)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.1g}" if value else "0"


def rendered(name: str, table: Table, sheets: Sheets) -> str:
    """Return a table in Markdown, with its plot and how it was measured."""
    cells = cells_of(table, sheets)
    rows = [row for row in row_names(sheets) if row not in table.hidden]
    ratios = [head for each in table.ratios for head in (each.head, COMPILED + each.head)]
    ratios = [head for head in ratios if any(cells[head](row) is not None for row in rows)]
    columns = table.shown(sheets)
    lines = [[table.unit, *(f"**{head}**" for head in ratios), *columns], ["---"] * (1 + len(ratios) + len(columns))]
    lines += [[row, *(formatted(cells[head](row)) for head in (*ratios, *columns))] for row in rows]
    text = "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in lines)
    plot = f"\n![{table.title}](figures/{name}.svg)\n" if table.plot else ""
    how = [f"{build}: {sheet['how']}." if len(sheets) > 1 else f"{sheet['how']}." for build, sheet in sheets.items()]
    return f"\n{text}{plot}\n*{' '.join(each[0].upper() + each[1:] for each in how)}*\n\n"
