"""Plots of the benchmarks as SVG: bars of each system in proportion to the peer, or stages of each system in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from benchmark_tables import COMPILED, Sheets, Table, cells_of, formatted, is_less, plotted_rows
from sheet import MARGIN, WIDTH, Sheet

# Okabe and Ito's palette for colour-blind readers; shades of blue are ours.
OURS = ("#0072B2", "#56B4E9", "#004466", "#99CCEE", "#335577", "#AACCDD")
PEERS = ("#E69F00", "#D55E00", "#009E73", "#CC79A7", "#999999", "#F0E442")
STAGES = {"publisher": OURS[0], "client": OURS[0], "server": PEERS[0], "leader": PEERS[0], "follower": PEERS[1]}
STAGE_OTHERS = {"subscriber": PEERS[2], "kernel": "#CCCCCC"}
BAR, LINE = 12, 15
RIGHT = 100
"""Room for the figures behind the bars."""
LONGEST = 10.0
"""Bars of more than this many times the peer are cut."""


def colours(table: Table, columns: list[str]) -> dict[str, str]:
    """Return a colour for each column."""
    own = [column for column in columns if column.removeprefix(COMPILED) in table.ours]
    others = [column for column in columns if column not in own]
    return dict(zip(own, cycle(OURS), strict=False)) | dict(zip(others, cycle(PEERS), strict=False))


def draw(table: Table, sheets: Sheets) -> str:
    """Return the plot of a table."""
    return _stages(table, sheets) if table.plot == "stages" else _bars(table, sheets)


def _bars(table: Table, sheets: Sheets) -> str:
    cells, rows = cells_of(table, sheets), plotted_rows(table, sheets)
    columns = [each for each in table.shown(sheets) if each.removeprefix(COMPILED) not in table.unplotted]
    found = {(row, column): cells[column](row) for row in rows for column in columns}
    values = {place: float(value) for place, value in found.items() if isinstance(value, float | int)}
    columns = [column for column in columns if any((row, column) in values for row in rows)]
    fills = colours(table, columns)
    sheet = _begin(table.title)
    legend(sheet, fills)
    top, left = sheet.bottom, _room(rows)
    bases = {row: _base(table, sheets, row, values) for row in rows}
    lengths = {(row, column): min(value / bases[row], LONGEST) for (row, column), value in values.items()}
    scale = (WIDTH - left - RIGHT) / max(1.0, *lengths.values())
    for row in rows:
        sheet.text(MARGIN, sheet.bottom + 11, row.replace("`", ""))
        for column in (column for column in columns if (row, column) in values):
            value, length = values[row, column], lengths[row, column]
            sheet.bar(left, sheet.bottom, length * scale, BAR, fills[column])
            cut = " (cut)" if value / bases[row] > LONGEST else ""
            sheet.text(left + length * scale + 5, sheet.bottom + 11, formatted(value) + cut)
            sheet.bottom += LINE
        sheet.bottom += 8
    if table.ratios:
        sheet.rule(left + scale, top - 4, sheet.bottom - 4)
    sheet.text(MARGIN, sheet.bottom + 12, _meaning(table, rows), colour="#444")
    sheet.bottom += 22
    return sheet.render()


def _begin(title: str) -> Sheet:
    sheet = Sheet(title)
    sheet.text(MARGIN, sheet.bottom + 12, title, bold=True)
    sheet.bottom += 26
    return sheet


def _room(labels: Iterable[str]) -> float:
    """Return the width of the longest label."""
    return MARGIN + 10 + 7.0 * max(map(len, labels))


def _meaning(table: Table, rows: Sequence[str]) -> str:
    """Tell what the dashed line is, and whether more is better."""
    less = {is_less(table, row) for row in rows}
    better = (
        "of rates more is better, of times less" if len(less) > 1 else f"{'less' if True in less else 'more'} is better"
    )
    line = f"Dashed line: 1.0 {table.ratios[0].head}; ".replace("`", "") if table.ratios else ""
    return f"{line}{better}."[:1].upper() + f"{line}{better}."[1:]


def _base(table: Table, sheets: Sheets, row: str, values: Mapping[tuple[str, str], float]) -> float:
    """Return the value that has a bar of length 1: the best peer's, or else the largest."""
    if not table.ratios:
        return max(values.values())
    peers = [
        float(value)
        for peer in table.ratios[0].peers
        if isinstance(value := cells_of(table, sheets)[peer](row), float | int)
    ]
    largest = max((value for (of, _), value in values.items() if of == row), default=1.0)
    return ((min if is_less(table, row) else max)(peers) if peers else largest) or 1.0


def legend(sheet: Sheet, fills: dict[str, str]) -> None:
    """Draw the key of the colours."""
    x = float(MARGIN)
    for name, fill in fills.items():
        width = 30 + 7 * len(name)
        if x + width > WIDTH - MARGIN:
            x, sheet.bottom = MARGIN, sheet.bottom + 18
        sheet.bar(x, sheet.bottom, BAR, BAR, fill)
        sheet.text(x + BAR + 5, sheet.bottom + 11, name.replace("`", ""))
        x += width
    sheet.bottom += 26


def _stages(table: Table, sheets: Sheets) -> str:
    """Draw a bar for each column, whose parts are the rows."""
    cells, rows = cells_of(table, sheets), plotted_rows(table, sheets)
    sheet = _begin(f"{table.title}, {table.unit}")
    known = STAGES | STAGE_OTHERS
    fills = {row: known[row.partition(":")[0].partition(",")[0].split()[0]] for row in rows}
    legend(sheet, {row.partition(":")[0].partition(",")[0]: fill for row, fill in fills.items()})
    columns = table.shown(sheets)
    values = {column: {row: float(cells[column](row) or 0) for row in rows} for column in columns}
    left = _room(columns)
    scale = (WIDTH - left - RIGHT) / max(sum(each.values()) for each in values.values())
    for column, parts in values.items():
        sheet.text(MARGIN, sheet.bottom + 17, column)
        x = left
        for row, value in parts.items():
            sheet.bar(x, sheet.bottom, max(value * scale - 1, 0), 24, fills[row])
            if value * scale > 24:
                sheet.text(x + value * scale / 2, sheet.bottom + 17, f"{value:.0f}", anchor="middle")
            x += value * scale
        sheet.text(x + 5, sheet.bottom + 17, formatted(cells[column]("all")), bold=True)
        sheet.bottom += 32
    return sheet.render()
