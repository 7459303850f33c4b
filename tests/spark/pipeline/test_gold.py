"""Gold tables: counts per window, and gaps."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.pipeline import buckets, gold
from fyrehose_twisted.spark.pipeline.queries import read_queries
from fyrehose_twisted.spark.pipeline.silver import SILVER

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

STREAM = "fyrehose://test"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = EPOCH + timedelta(days=20_000)
SPAN = 1_000
"""Numbers per bucket in these tests, instead of :data:`buckets.NUMBERS`."""


def table(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    plain = {"stream": STREAM, "epoch": 0, "status": "ok", "copies": 1, "late_copies": 0, "latency_us": 0} | {
        "repeat": False,
        "payload": bytearray(b"1234"),
        "publisher": None,
        "counter": None,
        "received_at": None,
        "bad_json": None,
    }
    names = [part.split()[0].strip("`") for part in SILVER.split(", ")]
    full = [plain | {"bucket": row["sequence"] // SPAN} | row for row in rows]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in full], SILVER)


def with_edges(spark: SparkSession, silver: DataFrame, window: str) -> DataFrame:
    found = buckets.bucket_edges(silver, window).collect()
    schema = ", ".join(part for part in buckets.EDGES.split(", ") if "_batch" not in part)
    return spark.createDataFrame(found, schema)


def test_gaps_are_runs_of_numbers_missing_in_every_journal(spark: SparkSession) -> None:
    chance = random.Random(7)
    far = 2**47
    numbers = [number for number in range(200, 4_200) if chance.random() < 0.5 or 1_900 < number < 3_100]
    present = [n for n in numbers if not 2_000 < n < 3_050] + [far + 5, far + 6, far + 3_000]
    lost = [190, 191, *range(2_001, 2_300), far, far + 3_001, far + 4_000]
    rows = [{"sequence": n, "received_at": DAY + timedelta(seconds=n % 10_007)} for n in present]
    rows += [{"sequence": n, "status": "lost", "payload": None, "latency_us": None, "copies": 0} for n in lost]
    silver = table(spark, rows)
    found = gold.gaps(silver, with_edges(spark, silver, "1 minute"), "1 minute").collect()

    wanted = []
    at = 190
    for number in present:
        if number > at:
            wanted.append((at, number - 1, DAY + timedelta(seconds=number % 10_007)))
        at = number + 1
    wanted.append((far + 3_001, far + 4_000, None))
    got = sorted((row.first_missing, row.last_missing, row.closed_at) for row in found)
    assert [(a, b, c and c.replace(tzinfo=UTC)) for a, b, c in got] == wanted
    assert all(row.length == row.last_missing - row.first_missing + 1 for row in found)


def test_a_gap_at_the_end_has_no_closing_time(spark: SparkSession) -> None:
    silver = table(spark, [{"sequence": n, "status": "lost", "payload": None} for n in (5, 6, 2_500)])
    [gap] = gold.gaps(silver, with_edges(spark, silver, "1 minute"), "1 minute").collect()
    assert (gap.first_missing, gap.last_missing, gap.closed_at, gap.hour) == (5, 2_500, None, gold.UNKNOWN_HOUR)


def test_windows_count_received_records(spark: SparkSession) -> None:
    chance = random.Random(9)
    times = [DAY + timedelta(milliseconds=chance.randrange(200_000)) for _ in range(400)]
    # Wrong clocks make one window each, without those in between.
    times[10], times[20] = EPOCH, datetime(2200, 1, 1, tzinfo=UTC)
    rows = [
        {
            "sequence": 3 * n,
            "received_at": at,
            "payload": bytearray(bytes(chance.randrange(50))),
            "publisher": chance.choice(["aa", "bb", None]),
            "late_copies": chance.randrange(3),
            "copies": 3,
            "repeat": chance.random() < 0.1,
            "latency_us": chance.choice([0, 0, 1, 5, chance.randrange(10**6)]),
        }
        for n, at in enumerate(times)
    ]
    rows[5] |= {"status": "quarantined", "payload": None}
    silver = table(spark, rows).persist()
    gaps = gold.gaps(silver, with_edges(spark, silver, "1 minute"), "1 minute")
    traffic = gold.traffic(silver, gaps, "1 minute").collect()
    latency = gold.latency(silver, "1 minute").collect()
    silver.unpersist()

    def start(row: dict[str, Any]) -> datetime:
        found: datetime = row["received_at"].replace(second=0, microsecond=0)
        return found

    wanted, delays = {}, {}
    for begin, group in groupby(sorted(rows, key=start), key=start):
        some = list(group)
        closed = sum(row["sequence"] > 0 for row in some)
        wanted[begin] = (
            len(some),
            sum(len(row["payload"] or b"") for row in some),
            len({row["publisher"] for row in some} - {None}),
            2 * closed,
            closed,
            sum(row["late_copies"] for row in some),
            sum(row["repeat"] for row in some),
        )
        ordered = sorted(row["latency_us"] for row in some)
        ranks = [-(-len(ordered) * percent // 100) - 1 for percent in (50, 95, 99)]
        delays[begin] = (3 * len(some), *(ordered[rank] for rank in ranks), ordered[-1])
    assert {row.window_start.replace(tzinfo=UTC): tuple(row[3:10]) for row in traffic} == wanted
    assert {row.window_start.replace(tzinfo=UTC): tuple(row[3:8]) for row in latency} == delays
    assert all(row.window_end - row.window_start == timedelta(minutes=1) for row in [*traffic, *latency])
    assert {row.hour for row in traffic} == {f"{begin:%Y-%m-%d-%H}" for begin in wanted}


@pytest.mark.parametrize("text", ["", "1", "minute", "0 minutes", "1 month", "-1 day", "1 minute; DROP"])
def test_an_invalid_window_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--window"):
        gold.check_window(text)


def test_window_durations_are_parsed() -> None:
    assert gold.duration_us(gold.check_window("90 seconds")) == 90_000_000
    assert gold.duration_us(gold.check_window("1 day")) == 86_400_000_000


def test_gold_queries_are_checked_before_the_run(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such directory"):
        read_queries(spark, str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no file NAME\.sql"):
        read_queries(spark, str(tmp_path))
    (tmp_path / "busy.sql").write_text("SELECT * FROM traffic;\n")
    assert read_queries(spark, str(tmp_path)) == {"busy": "SELECT * FROM traffic"}
    (tmp_path / "wrong.sql").write_text("SELEKT 1")
    with pytest.raises(ConfigurationError, match=r"wrong\.sql is not SQL"):
        read_queries(spark, str(tmp_path))
    (tmp_path / "wrong.sql").rename(tmp_path / "silver.sql")
    with pytest.raises(ConfigurationError, match="would be called 'silver'"):
        read_queries(spark, str(tmp_path))
