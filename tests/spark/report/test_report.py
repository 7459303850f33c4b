from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.report import command
from fyrehose_twisted.spark.report.axis import MAX_BINS, Axis, BinCount, make_bars
from fyrehose_twisted.spark.report.binning import FindingLane, JournalPair
from fyrehose_twisted.spark.report.page import render, write_page
from fyrehose_twisted.spark.report.page_data import TOP_FINDINGS, ReportData, StreamTraffic, load_page_data
from fyrehose_twisted.spark.report.rows import report_tables
from fyrehose_twisted.spark.report.tables import TableLocations, find_tables
from fyrehose_twisted.spark.report.text import format_delay, format_length, format_utc, short_names, summary_verdict
from fyrehose_twisted.spark.report.timeline import Timeline, WeightedSpan, bin_width, trim_outliers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOSTILE = "fyrehose://<script>alert(1)</script>"
STREAM = "fyrehose://test"
TIME = pa.timestamp("us", "UTC")
TYPES = {
    "findings": "stream epoch:l kind reason journal first:l last:l count:l detail",
    "quarantine": "stream epoch:l sequence:l journal segment received_at:t payload:b",
    "silver": "stream epoch:l bucket:l sequence:l received_at:t payload:b status copies:i late_copies:i "
    "repeat:o bad_json",
    "gold/traffic": "hour stream window_start:t window_end:t messages:l bytes:l publishers:l lost:l gaps:l repairs:l "
    "repeats:l",
    "gold/latency": "hour stream window_start:t window_end:t copies:l p50_us:l p95_us:l p99_us:l max_us:l",
    "gold/gaps": "hour stream epoch:l first_missing:l last_missing:l length:l closed_at:t",
}
PARTITIONS = {
    "findings": [],
    "quarantine": ["stream", "epoch"],
    "silver": ["stream", "epoch", "bucket"],
    "gold/traffic": ["hour"],
    "gold/latency": ["hour"],
    "gold/gaps": ["hour"],
}
ARROW = {"": pa.string(), "l": pa.int64(), "i": pa.int32(), "o": pa.bool_(), "t": TIME, "b": pa.binary()}


def write(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    fields = [pa.field(one.partition(":")[0], ARROW[one.partition(":")[2]]) for one in TYPES[name].split()]
    keys = PARTITIONS[name]
    parts = ds.partitioning(pa.schema([field for field in fields if field.name in keys]), flavor="hive")
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    (root / name).mkdir(parents=True, exist_ok=True)
    ds.write_dataset(table, root / name, format="parquet", partitioning=parts if keys else None,
                     existing_data_behavior="overwrite_or_ignore")  # fmt: skip


def finding(kind: str, reason: str, journal: str | None, first: int, last: int, **more: Any) -> dict[str, Any]:
    row = {"stream": STREAM, "epoch": 0, "kind": kind, "reason": reason, "journal": journal, "first": first}
    return {**row, "last": last, "count": last - first + 1, "detail": "", **more}


def window(start: datetime, messages: int, stream: str = STREAM, **more: int) -> dict[str, Any]:
    row = {"hour": f"{start:%Y-%m-%d-%H}", "stream": stream, "window_start": start, "messages": messages}
    rest = dict.fromkeys(("publishers", "lost", "gaps", "repairs", "repeats"), 0)
    return {**row, "window_end": start + timedelta(seconds=10), "bytes": messages * 100, **rest, **more}


def write_verdict(root: Path, journals: Iterable[dict[str, Any]], findings: dict[str, Any], status: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    said = {"journals": list(journals), "findings": findings, "status": status, "records": 1_990, "seconds": 1.5}
    (root / "verify.json").write_text(json.dumps(said))


def journal(name: str, first: int = 1, following: int = 1_001, **more: Any) -> dict[str, Any]:
    return {"journal": name, "stream": STREAM, "epoch": 0, "first": first, "next": following, "records": 995, **more}


holes = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5).map(
    lambda pairs: [(min(pair), max(pair)) for pair in pairs]
)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.data())
def test_axis_positions_and_numbers_are_inverse(one: int, other: int, data: st.DataObject) -> None:
    first, last = min(one, other), max(one, other)
    cut = sorted(data.draw(st.sets(st.integers(first, last), max_size=8)))
    pairs = list(zip(cut[::2], cut[1::2], strict=False))
    axis = Axis.over(STREAM, 0, first, last, pairs)
    place = data.draw(st.integers(0, axis.length - 1))
    assert axis.place(axis.number(place)) == place
    assert not any(low <= axis.number(place) <= high for low, high in axis.breaks)
    assert axis.number(0) == first
    assert axis.number(axis.length - 1) == last
    assert axis.length <= MAX_BINS * axis.width
    ticks = axis.ticks()
    assert all(axis.place(int(tick.text.replace(",", ""))) == tick.place for tick in ticks)


def test_a_large_gap_is_cut_out_of_the_axis() -> None:
    axis = Axis.over(STREAM, 0, 1, 2**47 + 2_000, [(1_001, 2**47 + 1_000)])
    assert 2_000 <= axis.length < 2_100
    assert axis.place(2**47 + 1_001) - axis.place(1_000) < 20


def test_a_small_gap_stays_on_the_axis() -> None:
    assert Axis.over(STREAM, 0, 1, 100_000, [(5_000, 9_000)]).breaks == ()


def test_equal_neighbouring_bins_are_one_bar() -> None:
    axis = Axis(STREAM, 0, 1, 4_000)
    made = make_bars(axis, [BinCount(4, 10, 0), BinCount(3, 10, 1), BinCount(5, 1, 1), BinCount(9, 10, 1)])
    assert [(mark.first, mark.last, mark.numbers, mark.runs) for mark in made] == [
        (3, 4, 20, 1),
        (5, 5, 1, 1),
        (9, 9, 10, 1),
    ]
    assert made[0].level > made[1].level


def test_rare_outliers_are_trimmed_from_the_time_axis() -> None:
    spans = [WeightedSpan(0, 10, 1), WeightedSpan(10**9, 10**9 + 50, 5_000), WeightedSpan(10**12, 10**12 + 10, 2)]
    assert trim_outliers(spans, 5_003, 10**12 + 10) == WeightedSpan(10**9, 10**9 + 50, 5_000)


def test_frequent_times_are_not_trimmed_from_the_time_axis() -> None:
    spans = [WeightedSpan(0, 10, 50), WeightedSpan(400, 450, 500)]
    assert trim_outliers(spans, 550, 450) is None


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_trimming_outliers_keeps_most_of_the_weight(weights: list[int]) -> None:
    spans = [WeightedSpan(10**index, 10**index + 1, weight) for index, weight in enumerate(weights)]
    found = trim_outliers(spans, sum(weights), 10 ** len(weights))
    if found is not None:
        assert found.weight >= 0.9 * sum(weights)
        assert found.weight == sum(span.weight for span in spans if found.start <= span.start and span.end <= found.end)


@given(st.integers(0, 10**15), st.integers(1, 10**15), st.integers(1, 10**9))
def test_bins_are_whole_windows_and_cover_the_span(start: int, span: int, window: int) -> None:
    width, bins = bin_width(start, start + span, window)
    assert width % window == 0
    assert (bins - 1) * width < span <= bins * width
    assert bins <= 360


def test_journals_are_named_by_the_differing_part_of_their_paths() -> None:
    assert short_names(["/data/east/flights", "/data/west/flights"]) == {
        "/data/east/flights": "east",
        "/data/west/flights": "west",
    }
    assert short_names(["/data/a", "/data/a/b"]) == {"/data/a": "/data/a", "/data/a/b": "/data/a/b"}
    assert len(short_names(["x" * 200])["x" * 200]) == 44


def test_durations_are_formatted_with_units() -> None:
    assert [format_delay(1), format_delay(1_500), format_delay(2_500_000)] == ["1 µs", "1.5 ms", "2.5 s"]
    assert [format_length(10_000_000), format_length(90_000_000), format_length(7_200_000_000)] == [
        "10 s",
        "90 s",
        "2 h",
    ]
    assert format_utc(0) == "1970-01-01 00:00:00"
    assert format_utc(10**18) == "1e+12 s after 1970"


@pytest.mark.parametrize(
    ("status", "findings", "journals", "level", "headline"),
    [
        (0, {}, "ab", "good", "The journals agree, and together they have every number."),
        (0, {}, "a", "good", "The journal has every number."),
        (1, {"missing/nobody": (2, 7)}, "ab", "losses", "7 numbers are in no journal; what the journals have agrees."),
        (1, {"missing/lost": (1, 1)}, "a", "losses", "The journal lacks 1 number."),
        (2, {"order/epoch": (1, 4)}, "ab", "divergence", "The order of 4 numbers is wrong; payloads agree."),
        (2, {"divergence/payload": (1, 3)}, "ab", "divergence", "The journals disagree on 3 numbers."),
    ],
)
def test_the_verdict_summarises_the_findings(
    status: int, findings: Any, journals: str, level: str, headline: str
) -> None:
    totals = {key: {"runs": runs, "numbers": numbers} for key, (runs, numbers) in findings.items()}
    said = {"status": status, "findings": totals, "records": 5, "journals": [journal(name) for name in journals]}
    made = summary_verdict(ReportData(TableLocations([], verdicts=[(Path("x"), said)])))
    assert (made.level, made.headline) == (level, headline)
    assert len(made.findings) == len(findings)


def timeline(rows: dict[str | None, dict[int, dict[str, int]]], bins: int = 3, **more: int) -> Timeline:
    start = 1_700_000_000_000_000
    whole = WeightedSpan(start, start + bins * 10_000_000, 100)
    return Timeline(start, 10_000_000, bins, whole.end, 10_000_000, whole, more.get("hidden", 0), rows)


def test_text_of_the_data_is_escaped_in_the_report() -> None:
    said = {"status": 0, "journals": [{**journal(HOSTILE), "stream": HOSTILE}]}
    found = ReportData(TableLocations([Path(HOSTILE)], verdicts=[(Path(HOSTILE), said)]))
    found.streams = [StreamTraffic(HOSTILE, 1, 5, 500, 0, 0, 0, 0)]
    counts = dict.fromkeys(("messages", "bytes", "lost", "repairs", "repeats", "gaps"), 1)
    found.traffic = timeline({HOSTILE: {0: counts}})
    text = render(found, HOSTILE, NOW)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    plain = render(ReportData(TableLocations([])), "x", NOW)
    assert text.lower().count("<script") == plain.lower().count("<script")


def test_the_report_of_empty_data_says_so() -> None:
    text = render(ReportData(TableLocations([Path("empty")])), "Nothing", NOW)
    for sentence in (
        "There is nothing in these tables yet.",
        "no traffic in gold",
        "no latency",
        "the tables are empty",
    ):
        assert sentence in text
    assert 'data-figure="' not in text


def test_a_report_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_page(ReportData(TableLocations([])), out, "x", NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_text() == "old"


def test_a_report_of_a_directory_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no tables"):
        find_tables([tmp_path])
    with pytest.raises(ConfigurationError, match="there is no directory"):
        find_tables([tmp_path / "no"])


def test_a_report_of_one_stream_in_two_directories_is_an_error(tmp_path: Path) -> None:
    for name in "ab":
        write_verdict(tmp_path / name, [journal("east")], {}, 0)
    with pytest.raises(ConfigurationError, match="counted twice"):
        find_tables([tmp_path / "a", tmp_path / "b"])
    assert len(find_tables([tmp_path / "a", tmp_path / "a"]).verdicts) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"journals": 3}', '{"journals": [3]}'])
def test_an_invalid_verdict_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "verify.json").write_text(text)
    with pytest.raises(ConfigurationError, match="not what verify writes"):
        find_tables([tmp_path])


def test_an_unwritable_report_path_is_an_error_before_spark_starts(tmp_path: Path) -> None:
    write_verdict(tmp_path, [], {}, 0)
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    for out, message in ((tmp_path, "is a directory"), (tmp_path / "no" / "x.html", "there is no directory")):
        with pytest.raises(ConfigurationError, match=message):
            command.run(parser.parse_args(["report", str(tmp_path), "--out", str(out)]))


def test_the_report_counts_the_tables_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    rows = [finding("missing", "lost", "east", first, first) for first in range(1, 1_000, 10)]
    rows.append(finding("missing", "nobody", None, 1_001, 2**47 + 1_000))
    rows.append(finding("divergence", "payload", None, 500, 509))
    write(tmp_path, "findings", rows)
    versions = [("east", b"a"), ("west", b"b"), ("south", b"b"), ("south", b"c")]
    write(tmp_path, "quarantine", [
        {"stream": STREAM, "epoch": 0, "sequence": number, "journal": name, "payload": payload}
        for number in range(500, 510) for name, payload in versions
    ])  # fmt: skip
    write_verdict(tmp_path, [journal("east", 1, 2**47 + 2_001), journal("west")], {}, 2)
    found = load_page_data(spark, find_tables([tmp_path]))
    assert [(group.reason, group.runs, group.numbers) for group in found.groups] == [
        ("payload", 1, 10),
        ("nobody", 1, 2**47),
        ("lost", 100, 100),
    ]
    assert [one.reason for one in found.top_findings] == ["payload", "nobody", *["lost"] * TOP_FINDINGS]
    (numbers,) = found.sequence_plots
    assert numbers.axis.length < 3_000
    lost = numbers.lanes[FindingLane("missing", "lost", "east")]
    assert (sum(one.numbers for one in lost), sum(one.runs for one in lost)) == (100, 100)
    axis = numbers.axis
    assert {one.bin for one in lost} == {axis.place(first) // axis.width for first in range(1, 1_000, 10)}
    assert {pair: sum(one.numbers for one in counts) for pair, counts in numbers.pairs.items()} == dict.fromkeys(
        [
            JournalPair("east", "south"),
            JournalPair("east", "west"),
            JournalPair("south", "west"),
            JournalPair("south", "south"),
        ],
        10,
    )
    text = render(found, "x", NOW)
    assert "140,737,488,355,328 in no journal" in text
    assert "90 more are in the table" in text


def test_the_report_counts_the_tables_of_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    windows = [window(NOW + timedelta(seconds=10 * index), 100, lost=index % 2, repairs=1) for index in range(720)]
    strays = [window(datetime(year, 1, 1, tzinfo=UTC), 2) for year in (1970, 2200)]
    write(tmp_path, "gold/traffic", windows + strays)
    delays = {"copies": 5, "p50_us": 10, "p95_us": 20, "p99_us": 30}
    write(tmp_path, "gold/latency", [{**one, **delays, "max_us": 40 + index} for index, one in enumerate(windows)])
    write(tmp_path, "gold/gaps", [
        {"hour": "2026", "stream": STREAM, "epoch": 0, "first_missing": 21, "last_missing": 30, "length": 10}
    ])  # fmt: skip
    write(tmp_path, "silver", [
        {"stream": STREAM, "epoch": 0, "bucket": 0, "sequence": number, "status": "ok", "copies": 2,
         "late_copies": number % 2, "repeat": number == 5} for number in range(1, 21)
    ])  # fmt: skip
    found = load_page_data(spark, find_tables([tmp_path]))
    assert found.streams == [StreamTraffic(STREAM, 722, 72_004, 7_200_400, 360, 0, 720, 0)]
    traffic = found.traffic
    assert traffic is not None
    assert traffic.hidden == 4
    assert (traffic.start, traffic.end) == tuple(
        round(time.timestamp() * 1e6) for time in (NOW, NOW + timedelta(hours=2))
    )
    assert (traffic.bins, traffic.step) == (360, 20_000_000)
    assert sum(one["messages"] for one in traffic.rows[STREAM].values()) == 72_000
    assert found.latency is not None
    assert found.latency.rows[STREAM][359] == {"p50_us": 10, "p95_us": 20, "p99_us": 30, "copies": 10, "max_us": 759}
    (numbers,) = found.sequence_plots
    assert sorted(numbers.lanes[FindingLane("missing", "nobody", None)]) == [
        BinCount(bin, 1, int(bin == 20)) for bin in range(20, 30)
    ]
    assert sorted(numbers.repairs) == [BinCount(bin, 1, 1) for bin in range(0, 20, 2)]
    assert [listing.name for listing in report_tables(found)] == ["findings", "refined", "traffic"]
    assert "4 messages, sent or lost (0.00553 %), between 1970-01-01 00:00:00 and 2200-01-01" in render(found, "x", NOW)


def test_the_report_accepts_empty_tables_and_a_single_window(spark: SparkSession, tmp_path: Path) -> None:
    for name in TYPES:
        (tmp_path / name).mkdir(parents=True)
    found = load_page_data(spark, find_tables([tmp_path]))
    assert (found.groups, found.sequence_plots, found.traffic, found.latency) == ([], [], None, None)
    write(tmp_path, "gold/traffic", [window(NOW, 1)])
    found = load_page_data(spark, find_tables([tmp_path]))
    assert found.traffic is not None
    assert (found.traffic.bins, found.traffic.hidden) == (1, 0)
    assert "1 message and 100 bytes from 2026-01-31 12:00:00 to 2026-01-31 12:00:10 UTC" in render(found, "x", NOW)
