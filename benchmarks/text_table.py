"""Tables of figures on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def number(value: float | None, digits: int = 0) -> str:
    """Format a figure for a table."""
    return "-" if value is None else f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; all columns but the first are numbers."""
    lines = [list(head), *(list(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        print("  ".join(cells).rstrip())
    print()
