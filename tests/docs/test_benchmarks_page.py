"""Measured figures of the pages agree with ``docs/benchmarks.json``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
GENERATED = re.compile(
    r"<!-- (?:table: [\w-]+|machines) -->.*?<!-- end -->|<!--= .*?<!--/-->|```.*?```|`[^`]*`", re.DOTALL
)
MEASURED = re.compile(r"\d\.\d|\d,\d{3},\d{3}")
"""Ratios, times and large rates: prose has round numbers only."""


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    """Import ``docs/benchmark_figures.py``, which belongs to no package."""
    sys.path.insert(0, str(DOCS))
    yield import_module("benchmark_figures")
    sys.path.remove(str(DOCS))


@pytest.fixture
def figures(pages: ModuleType) -> dict[str, Any]:
    return deepcopy(pages.read_figures())


def outputs(pages: ModuleType, figures: dict[str, Any]) -> dict[Path, str]:
    return dict(pages.outputs(figures))


def test_pages_and_plots_have_the_committed_figures(pages: ModuleType, figures: dict[str, Any]) -> None:
    stale = [str(path) for path, text in outputs(pages, figures).items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run make bench-docs"


def test_committed_figures_are_written_as_the_script_writes_them(pages: ModuleType, figures: dict[str, Any]) -> None:
    assert pages.FIGURES.read_text(encoding="utf-8") == pages.as_text(figures)


def test_every_plot_is_of_a_table_and_on_the_page(pages: ModuleType, figures: dict[str, Any]) -> None:
    drawn = {path.name for path in outputs(pages, figures) if path.suffix == ".svg"}
    assert drawn == {path.name for path in pages.PLOTS.iterdir()}
    assert {f"{name}.svg" for name in re.findall(r"\]\(figures/([\w-]+)\.svg\)", PAGE)} == drawn


def test_every_table_is_shown_or_quoted(pages: ModuleType) -> None:
    used = set(re.findall(r"<!-- table: ([\w-]+) -->|<!--= ([\w-]+);", PAGE))
    assert {name for pair in used for name in pair if name} == set(pages.TABLES)


def test_every_page_with_figures_is_written(pages: ModuleType) -> None:
    found = {path for path in [ROOT / "README.md", *DOCS.rglob("*.md")] if "<!--= " in path.read_text(encoding="utf-8")}
    assert found == {path.resolve() for path in pages.QUOTING}


def test_changed_figure_changes_table_plot_ratio_and_quotations(pages: ModuleType, figures: dict[str, Any]) -> None:
    before = outputs(pages, figures)
    rows = figures["round-trips"]["interpreted"]["rows"]
    rows["median, µs"]["fyrehose"] = 3 * rows["median, µs"]["NATS"]
    after = outputs(pages, figures)
    changed = {path.name for path in after if after[path] != before[path]}
    assert changed == {"README.md", "benchmarks.md", "comparison.md", "tuning.md", "round-trips.svg"}
    assert "takes <!--= round-trips; median, µs; of NATS -->3.00<!--/--> times" in after[DOCS / "benchmarks.md"]
    assert "| median, µs | 3.00 |" in after[DOCS / "benchmarks.md"]


def test_compiled_results_are_shown_beside_interpreted_ones(
    pages: ModuleType, figures: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "compiled").mkdir()
    found = {
        "machine": {"cores": "8", "Python": "3.13", "gcc": "not installed"},
        "how": "one round",
        "tables": {"round-trips": {"median, µs": {"fyrehose": 50.0, "NATS": 200.0}}},
    }
    (tmp_path / "compiled" / "race.json").write_text(json.dumps(found), encoding="utf-8")
    for kept in figures.values():
        kept.pop("compiled", None)
    texts = outputs(pages, pages.gather(tmp_path, figures))
    page = texts[DOCS / "benchmarks.md"]
    ours = "fyrehose | compiled, fyrehose | fyrehose, asyncio | fyrehose, uvloop"
    assert f"| | **of NATS** | **compiled, of NATS** | {ours} | NATS |" in page
    assert re.search(r"\| median, µs \| [\d.]+ \| 0\.25 \| \d+ \| 50\.0 \|", page)
    assert "- 8 cores, Python 3.13\n" in page
    assert ", 0.25 compiled<!--/-->" in page
    assert "compiled, fyrehose" in texts[pages.PLOTS / "round-trips.svg"]


def test_results_replace_only_their_own_tables(pages: ModuleType, figures: dict[str, Any], tmp_path: Path) -> None:
    found = {"machine": {}, "how": "one round", "tables": {"loss": {"none": {"fyrehose": 1.0}}}}
    (tmp_path / "loss.json").write_text(json.dumps(found), encoding="utf-8")
    after = pages.gather(tmp_path, figures)
    assert {name for name in figures if after[name] != figures[name]} == {"loss"}
    assert after["loss"]["interpreted"]["rows"] == {"none": {"fyrehose": 1.0}}


def test_ratio_is_to_the_best_peer_which_has_the_most_or_the_shortest_time(pages: ModuleType) -> None:
    kind = import_module("benchmark_tables")
    rows = {"rate": {"us": 6.0, "a": 2.0, "b": 3.0}, "median, µs": {"us": 6.0, "a": 2.0, "b": 3.0}}
    table = kind.Table("", ours=("us",), others=("a", "b"), ratios=(kind.Ratio("of the best", "us", ("a", "b")),))
    best = kind.cells_of(table, {"interpreted": {"rows": rows}})["of the best"]
    assert (best("rate"), best("median, µs")) == (2.0, 3.0)


def test_unknown_figure_is_an_error(pages: ModuleType, figures: dict[str, Any]) -> None:
    with pytest.raises(pages.MissingFigure, match="no such row"):
        pages.written("<!--= loss; no such row; of NATS --><!--/-->", figures)


def test_bars_are_as_long_as_the_figures(pages: ModuleType) -> None:
    rows = {"none": {"fyrehose": 300.0, "NATS": 100.0}}
    drawing = ElementTree.fromstring(pages.draw(pages.TABLES["loss"], {"interpreted": {"rows": rows}}))
    bars = [each for each in drawing.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "12.0"]
    key, bars = bars[:2], bars[2:]
    assert [each.get("fill") for each in bars] == [each.get("fill") for each in key]
    ours, theirs = (float(each.get("width", "")) for each in bars)
    assert ours == pytest.approx(3 * theirs, abs=0.2)


@pytest.mark.parametrize("name", ["benchmarks", "comparison"])
def test_prose_leaves_measured_figures_to_the_results(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    prose = GENERATED.sub("", text).replace("Version 0.1", "").replace("1.5 kB", "").replace("nats-server 2.10", "")
    assert [line for line in prose.splitlines() if MEASURED.search(line)] == []


@pytest.mark.parametrize(
    "name", ["../README", "benchmarks", "comparison", "howto/tuning", "howto/frontend", "howto/parcels-operate"]
)
def test_no_line_begins_with_a_figure(name: str) -> None:
    # Markdown would take the rest of the line for HTML.
    assert re.findall(r"^ *<!--=.*", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE) == []


def test_page_names_the_command_of_each_question() -> None:
    questions = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    without = [text.splitlines()[0] for text in questions if "benchmarks/bench_" not in text]
    assert without == ["The demo"]
    named = set(re.findall(r"benchmarks/(bench_\w+\.py)", PAGE))
    assert {name for name in named if not (ROOT / "benchmarks" / name).exists()} == set()
