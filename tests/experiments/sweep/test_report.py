from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.sweep.cli.parser import main
from fyrehose_twisted.experiments.sweep.figures import MAX_LINES, band_colour, format_number, make_plot
from fyrehose_twisted.experiments.sweep.grid import Cell, make_grid
from fyrehose_twisted.experiments.sweep.interval import confidence_interval, t_quantile
from fyrehose_twisted.experiments.sweep.page import render
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import simulate_row, to_arrow_batch
from fyrehose_twisted.experiments.sweep.sweep_data import SweepData, load_sweep_data

GRID: dict[str, Any] = {
    "replicas": 8,
    "grid": [
        {"name": "trees", "topology": ["kleinberg", "random"], "n": [1_000, 3_000, 10_000]},
        {"name": "<script>alert(1)</script>", "kill": [0.1, 0.3], "accept": ["root", "own"]},
    ],
}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SEED = 1

Write = Callable[..., SweepResults]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the results of a sweep: ``write(said=GRID, fail=False, keep=None)``, where ``keep`` selects networks."""

    def run(cell: Cell) -> dict[str, Any]:
        rng = Random(f"{SEED}/{cell.number}/{cell.replica}")
        found = {"roots_per_key": 1 + rng.expovariate(3), "reach": rng.random(), "depth_mean": rng.gauss(9, 1)}
        return found | ({"repair_time_p50": rng.random()} if cell.settings.kill else {})

    def failing(cell: Cell) -> dict[str, Any]:
        if cell.replica < 2:
            raise ValueError("<b>planted</b>")
        return run(cell) | {"violation": "no cycle: <i>3</i>"}

    def written(said: dict[str, Any] = GRID, *, fail: bool = False, keep: int | None = None) -> SweepResults:
        grid, results = make_grid(said, tmp_path), SweepResults(tmp_path / "out")
        with results.open_for_writing(grid, {"fyrehose_twisted": "1", "numpy": "2"}):
            rows = [simulate_row(cell, failing if fail else run) for cell in grid.cells()]
            results.add(pyarrow.Table.from_batches([to_arrow_batch(rows[:keep])]))
        return results

    return written


def text_of(page: str) -> str:
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", bare)))


def rows_of(page: str, name: str) -> list[list[str]]:
    match = re.search(rf'<table id="{re.escape(name)}">.*?</table>', page, re.DOTALL)
    assert match is not None, name
    rows = re.findall(r"<tr>(.*?)</tr>", match[0], re.DOTALL)
    return [[unescape(re.sub(r"<[^>]+>", "", one)) for one in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in rows]


@pytest.mark.parametrize(
    ("freedom", "expected"),
    # Of the tables of Student's t.
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (19, 2.0930), (30, 2.0423), (999, 1.9623)],
)
def test_t_quantiles_match_published_values(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=6e-5)


def test_confidence_interval_matches_published_values() -> None:
    said = confidence_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert said == pytest.approx((4, 2.5, 2.5 - half, 2.5 + half, 1.0, 4.0), rel=1e-5)
    assert confidence_interval([3.0]) == (1, 3.0, None, None, 3.0, 3.0)
    assert confidence_interval([0.9, 1.0], 0.0, 1.0)[2:4] == (pytest.approx(0.3147, abs=1e-4), 1.0)
    assert confidence_interval([0.0, 0.1])[2] == 0.0
    assert confidence_interval([1.0, 1.0, 1.0], 1.0) == (3, 1.0, 1.0, 1.0, 1.0, 1.0)


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_a_mean_is_within_its_interval(values: list[float]) -> None:
    said = confidence_interval(values)
    assert said.low is not None
    assert said.high is not None
    near = 1e-9 * (1 + said.mean)
    assert 0.0 <= said.low <= said.mean + near
    assert said.mean - near <= said.high


@pytest.mark.extended
def test_the_numbers_of_the_page_are_those_of_the_table(write: Write) -> None:
    import duckdb

    results = write()
    page = render(load_sweep_data(results), "A", NOON)
    names = {"reach-0": ("topology, n", "trees"), "repair_time_p50-1": ("accept, kill", "<script>alert(1)</script>")}
    for plot, (settings, part) in names.items():
        metric = plot.rpartition("-")[0]
        found = duckdb.execute(
            f"SELECT {settings}, count({metric}), avg({metric}), stddev({metric}) / sqrt(8), min({metric}),"
            f" max({metric}) FROM '{results.table}/*/*.parquet' WHERE grid = ? GROUP BY ALL",
            [part],
        ).fetchall()
        reach = 1.0 if metric == "reach" else math.inf
        expected = {
            (str(one), f"{other:g}" if metric != "reach" else str(other)): [
                str(count),
                *map(
                    format_number,
                    (mean, max(0.0, mean - 2.364624 * error), min(reach, mean + 2.364624 * error), low, high),
                ),
            ]
            for one, other, count, mean, error, low, high in found
        }
        head, *rows = rows_of(page, f"{plot}-numbers")
        assert head == [*settings.split(", "), "networks", "mean", "95 % from", "to", "lowest", "highest"]
        assert {(one, other): rest for one, other, *rest in rows} == expected
    # The figures have the same numbers.
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])["figures"]  # type: ignore[index]
    lines = [one for one in figures["reach-0"]["data"] if one["mode"] == "lines+markers"]
    found = duckdb.execute(
        f"SELECT avg(reach) FROM '{results.table}/*/*.parquet' WHERE grid = 'trees' GROUP BY topology, n"
        " ORDER BY topology, n"
    ).fetchall()
    assert [y for line in lines for y in line["y"]] == pytest.approx([mean for (mean,) in found])
    assert [line["x"] for line in lines] == [[1_000, 3_000, 10_000]] * 2
    bands = [one for one in figures["reach-0"]["data"] if one.get("fill") == "toself"]
    assert [one["x"] for one in bands] == [[1_000, 3_000, 10_000, 10_000, 3_000, 1_000]] * 2
    assert [one["fillcolor"] for one in bands] == [band_colour(line["line"]["color"]) for line in lines]
    for band, line in zip(bands, lines, strict=True):
        highs, lows = band["y"][:3], band["y"][:2:-1]
        assert all(low < mean < high for low, mean, high in zip(lows, line["y"], highs, strict=True))


def test_the_report_describes_the_sweep(write: Write) -> None:
    page = render(load_sweep_data(write()), "A <b>title</b>", NOON)
    said = text_of(page)
    for one in (
        "A <b>title</b>",
        "80 networks in 2 grids",
        "8 replicas of each cell, from seed 1.",
        "None failed, and no invariant was broken.",
        "Grid trees",
        "48 networks of 48. Lines go over n.",
        "Grid <script>alert(1)</script>",
        "32 networks of 32. Lines go over kill.",
        "There was nothing to measure for: ",
        "time to repair, median",
        "Each point is the mean of 8 networks. The shaded band is its 95 % confidence interval.",
        "which was simulated by fyrehose_twisted 1, numpy 2.",
    ):
        assert one in said, one
    assert "alert(1)</script>" not in page
    assert "<b>title" not in page
    assert 'class="card verdict good"' in page


def test_file_names_cannot_become_markup(write: Write, tmp_path: Path) -> None:
    names = ["<script>alert(2)", "<b>links"]
    for name in names:
        (tmp_path / name).write_text("a b\n")
    page = render(load_sweep_data(write({"topology": "file", "file": names, "subscribers": 1})), "A", NOON)
    assert not [name for name in names if name in page]
    assert [row[0] for row in rows_of(page, "reach-0-numbers")[1:]] == [str(tmp_path.resolve() / one) for one in names]


def test_failures_and_violations_are_shown(write: Write) -> None:
    page = render(load_sweep_data(write(fail=True)), "A", NOON)
    said = text_of(page)
    assert "20 failed; in 60 an invariant was broken." in said
    assert re.search(r"20 networks failed: ValueError: <b>planted</b> \(failing, line \d+\)", said)
    assert "60 networks broke an invariant: no cycle: <i>3</i>" in said
    assert 'class="card verdict divergence"' in page
    assert "<b>planted" not in page
    assert "Each point is the mean of 6 networks." in said


def test_missing_networks_are_reported(write: Write) -> None:
    page = render(load_sweep_data(write(keep=50)), "A", NOON)
    assert "30 of 80 are not simulated yet." in text_of(page)
    assert "Each point is the mean of 2 networks" in text_of(page)
    assert 'class="card verdict unknown"' in page


def test_the_axis_can_be_chosen(write: Write) -> None:
    results = write()
    for wished, axes in (("", ["n", "kill"]), ("accept", ["n", "accept"]), ("topology", ["topology", "kill"])):
        assert [part.axis for part in load_sweep_data(results, axis=wished).parts] == axes
    found = load_sweep_data(results, axis="topology").parts[0]
    assert found.varied == ("n",)
    figure = make_plot(found.panels[0], found, "x").figure
    # In categories there are bars, and no bands.
    assert [trace.mode for trace in figure.data] == ["markers"] * 3
    assert all(trace.error_y.array is not None for trace in figure.data)
    assert list(figure.layout.xaxis.categoryarray) == ["kleinberg", "random"]
    low, high = figure.layout.yaxis.range
    assert 0.8 < low < high < 2.5


def test_the_axis_is_a_number_if_there_is_one(write: Write) -> None:
    results = write({"topology": ["kleinberg", "random", "swapped"], "n": [3_000, 1_000], "kill": [0.2, 0.1]})
    (part,) = load_sweep_data(results).parts
    assert (part.axis, part.varied) == ("n", ("topology", "kill"))
    assert {tuple(point.x for point in one.points) for one in part.panels[0].series} == {(1_000, 3_000)}


def test_zero_is_a_value_and_missing_metrics_are_listed(tmp_path: Path) -> None:
    grid, results = make_grid({"replicas": 3, "keys": [1, 2]}, tmp_path), SweepResults(tmp_path / "out")
    lost = {(0, 0): 0.0, (0, 1): 3.0, (0, 2): math.nan, (1, 0): 0.0, (1, 1): 0.0}
    with results.open_for_writing(grid, {}):
        rows = [
            simulate_row(one, lambda one: {"lost_in_repair": lost.get((one.number, one.replica))})
            for one in grid.cells()
        ]
        results.add(pyarrow.Table.from_batches([to_arrow_batch(rows)]))
    (part,) = load_sweep_data(results, metrics=["lost_in_repair"]).parts
    ((series,),) = [panel.series for panel in part.panels]
    assert [(point.x, point.interval.networks, point.interval.mean) for point in series.points] == [
        (1, 2, 1.5),
        (2, 2, 0.0),
    ]


def test_metrics_and_networks_can_be_chosen(write: Write) -> None:
    results = write()
    found = load_sweep_data(results, metrics=["depth_mean", "messages"], where=["n=1000", "topology=random"])
    assert found.networks == 8
    (part,) = found.parts
    assert ([panel.metric for panel in part.panels], part.unmeasured) == (["depth_mean"], ("messages",))
    ((series,),) = [panel.series for panel in part.panels]
    assert [(point.x, point.interval.networks) for point in series.points] == [(1_000, 8)]
    assert "Only those with n=1000 and topology=random." in text_of(render(found, "A", NOON))
    assert load_sweep_data(results, where=["grid=trees"]).networks == 48


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ({"axis": "nn"}, "there is no setting 'nn'; did you mean n?"),
        ({"axis": "degree"}, "degree has one value only; these have several: accept, kill, n, topology"),
        ({"metrics": ["dept"]}, "there is no metric 'dept'; did you mean depth_m"),
        ({"where": ["n"]}, "'n' is not of the form NAME=VALUE"),
        ({"where": ["m=1"]}, "there is no setting 'm'"),
        ({"where": ["n=1"]}, "has no network with n=1 yet"),
    ],
)
def test_invalid_report_options_are_refused(write: Write, wishes: dict[str, Any], problem: str) -> None:
    results = write()
    with pytest.raises(ConfigurationError) as caught:
        load_sweep_data(results, **wishes)
    assert problem in str(caught.value)


def test_too_many_lines_are_only_in_the_table(write: Write) -> None:
    results = write({"replicas": 2, "n": [1_000, 2_000], "keys": list(range(1, 16))})
    found: SweepData = load_sweep_data(results, axis="n")
    (part,) = found.parts
    plot = make_plot(part.panels[0], part, "x")
    assert len(plot.legend) == MAX_LINES
    assert "3 more lines are only in the table." in plot.caption
    assert len(rows_of(render(found, "A", NOON), "reach-0-numbers")) == 1 + 30


def test_one_cell_is_one_point(write: Write) -> None:
    (part,) = load_sweep_data(write({"keys": 3})).parts
    figure = make_plot(part.panels[0], part, "x").figure
    assert [(list(one.x), one.mode) for one in figure.data] == [([3], "lines+markers")]


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0.0, "0"), (1.0, "1.000"), (0.0123416, "0.01234"), (123.45, "123.5"), (1_234.5, "1,234")],
)
def test_numbers_have_four_significant_digits(value: float | None, said: str) -> None:
    assert format_number(value) == said


def test_a_band_is_the_faint_colour_of_its_line() -> None:
    assert band_colour("#1f5fa8") == "rgba(31,95,168,0.16)"
    assert band_colour("#1f5fa8", dark=True) == "rgba(111,177,255,0.16)"


def test_report_command_writes_a_page(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, out = write(), tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(results.directory), "-o", str(out), "--x", "n", "--metric", "reach"])
    assert (ended.value.code, capsys.readouterr()) == (0, (f"{out}\n", ""))
    page = out.read_text("utf-8")
    assert "<title>Sweep out</title>" in page
    assert re.findall(r'<figure class="card" id="([^"]+)"', page) == ["reach-0", "reach-1"]
    assert {one.name for one in tmp_path.iterdir()} == {"out", "page.html"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "nowhere holds no sweep: there is no sweep.json"),
        (["nowhere", "-o", "."], "--out . is a directory"),
        (["nowhere", "-o", "a/b.html"], "there is no directory a; create it first"),
        ([], "the following arguments are required: DIR"),
    ],
)
def test_report_command_reports_errors_in_one_line(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    assert ended.value.code == 3
    assert problem in capsys.readouterr().err
