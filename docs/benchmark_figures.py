"""Measured figures of the pages: ``make bench-docs`` takes them from the results of the benchmarks.

``benchmarks.json`` keeps the latest results of each table. From it come the tables and plots of ``benchmarks.md``, and
single figures of the pages, which stand between ``<!--= TABLE; ROW; COLUMN -->`` and ``<!--/-->``. With a fourth part,
such as ``, {} compiled``, they are that text, or nothing where there is no such figure.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmark_contents import TABLES
from benchmark_plots import draw
from benchmark_tables import Sheets, cells_of, formatted, rendered

HERE = Path(__file__).parent
FIGURES = HERE / "benchmarks.json"
PAGE = HERE / "benchmarks.md"
PLOTS = HERE / "figures"
QUOTING = (
    PAGE,
    HERE.parent / "README.md",
    HERE / "comparison.md",
    *(HERE / "howto" / f"{name}.md" for name in ("tuning", "frontend", "parcels-operate")),
)
"""Pages with measured figures."""
BUILDS = {"interpreted": Path(), "compiled": Path("compiled")}
"""Directories of results by build."""
ABSENT = "not installed"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
MACHINES = re.compile(r"(<!-- machines -->\n).*?(<!-- end -->\n)", re.DOTALL)
FIGURE = re.compile(r"<!--= ([^;]+); ([^;]+); ([^;]+?)(?:; ([^;]+?))? -->(.*?)<!--/-->")


class MissingFigure(Exception):
    """A page quotes a figure that was not measured."""


def gather(results: Path, kept: dict[str, Any]) -> dict[str, Any]:
    """Return ``kept`` with the tables of all results that exist; tables without new results stay."""
    tables = dict(kept)
    for build, place in BUILDS.items():
        for path in sorted((results / place).glob("*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            for name, rows in found.get("tables", {}).items():
                tables[name] = {**tables.get(name, {}), build: {**described(found), "rows": rows}}
    return {name: tables[name] for name in TABLES if name in tables}


def described(found: Mapping[str, Any]) -> dict[str, str]:
    """Return what the page tells of a measurement, its machine, and the versions of other systems."""
    facts = {name: fact for name, fact in found["machine"].items() if fact != ABSENT}
    machine = [f"{facts.pop('cores', '?')} cores", *(facts.pop(name, "") for name in ("processor", "system"))]
    python = f"Python {facts.pop('Python')}" if "Python" in facts else ""
    others = (f"{name} {fact}" for name, fact in facts.items())
    return {"how": found["how"], "on": ", ".join(filter(None, (*machine, python))), "with": ", ".join(others)}


def machines(figures: Mapping[str, Sheets]) -> str:
    """Describe the machines of all measurements, with the versions of other systems."""
    found: dict[str, dict[str, None]] = {}
    for sheet in (sheet for sheets in figures.values() for sheet in sheets.values()):
        found.setdefault(sheet["on"], {}).update(dict.fromkeys(filter(None, sheet["with"].split(", "))))
    lines = (
        f"- {on}{'; ' if versions else ''}{', '.join(sorted(versions, key=str.lower))}"
        for on, versions in found.items()
    )
    return "\n" + "\n".join(fill(line, 120, subsequent_indent="  ") for line in lines) + "\n\n"


def read_figures(path: Path = FIGURES) -> dict[str, Sheets]:
    """Return rows and descriptions by table and build."""
    kept: dict[str, Sheets] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def as_text(figures: Mapping[str, Sheets]) -> str:
    """Return the figures as JSON with a line for each row of a table, so that changes are readable."""
    return _block((name, _block(_builds(sheets), 2)) for name, sheets in figures.items())


def _builds(sheets: Sheets) -> Iterator[tuple[str, str]]:
    for build, sheet in sheets.items():
        rows = _block(((row, _line(cells)) for row, cells in sheet["rows"].items()), 4)
        about = ((name, _line(sheet[name])) for name in ("how", "on", "with"))
        yield build, _block((*about, ("rows", rows)), 3)


def _block(items: Iterable[tuple[str, str]], depth: int = 1) -> str:
    inside = ",\n".join(f"{' ' * depth}{_line(name)}: {text}" for name, text in items)
    return f"{{\n{inside}\n{' ' * (depth - 1)}}}" + "\n" * (depth == 1)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def figure(figures: Mapping[str, Sheets], name: str, row: str, column: str, text: str | None = None) -> str:
    """Return a figure as its table shows it, within ``text``.

    :raises MissingFigure: if there is no such figure, and no text.
    """
    sheets = figures[name]
    cells = cells_of(TABLES[name], sheets)
    value = cells[column](row) if column in cells else None
    if value is None and text is None:
        raise MissingFigure(f"the pages quote {column!r} of {row!r}, which the results of {name!r} leave out")
    return "" if value is None else (text or "{}").replace("{}", formatted(value))


def written(text: str, figures: Mapping[str, Sheets]) -> str:
    """Return a page with all its tables and figures."""

    def quoted(found: re.Match[str]) -> str:
        return f"{found[0].partition('-->')[0]}-->{figure(figures, *found.group(1, 2, 3, 4))}<!--/-->"

    text = MACHINES.sub(lambda found: found[1] + machines(figures) + found[2], text)
    text = BLOCK.sub(lambda found: found[1] + rendered(found[2], TABLES[found[2]], figures[found[2]]) + found[3], text)
    return FIGURE.sub(quoted, text)


def outputs(figures: Mapping[str, Sheets]) -> Iterator[tuple[Path, str]]:
    """Yield each page and each plot with its text."""
    for page in QUOTING:
        yield page, written(page.read_text(encoding="utf-8"), figures)
    for name, table in TABLES.items():
        if table.plot and name in figures:
            yield PLOTS / f"{name}.svg", draw(table, figures[name])


def main(results: Path) -> None:
    """Write the figures, pages and plots.

    :raises MissingFigure: if the results leave out a figure that a page quotes.
    """
    kept = read_figures() if FIGURES.exists() else {}
    figures = gather(results, kept)
    # A figure that is quoted but was not measured ends it before anything is written.
    texts = [(FIGURES, as_text(figures)), *outputs(figures)]
    PLOTS.mkdir(exist_ok=True)
    for path, text in texts:
        path.write_text(text, encoding="utf-8")
        print(f"Wrote {path.relative_to(HERE.parent)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="directory of the results, build/bench")
    directory = parser.parse_args().results
    if not directory.is_dir():
        parser.error(f"there are no results in {directory}; run make bench first")
    try:
        main(directory)
    except MissingFigure as missing:
        parser.exit(1, f"{missing}. Run that benchmark without options that leave out parts\n")
