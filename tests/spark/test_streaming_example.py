"""The Structured Streaming job among the examples counts what there is, once."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

from fyrehose_twisted.fyrehose.envelope import wrap
from fyrehose_twisted.record import Record

EXAMPLE = Path(__file__).parents[2] / "examples" / "streaming_counts.py"
STREAM = "fyrehose://doors"
MINUTE = 60_000_000
START = 28_333_334 * MINUTE


def records(first: int, last: int) -> list[Record]:
    """One message every seven seconds; every third is a bell, and every fifth is not JSON."""
    made = []
    for number in range(first, last + 1):
        text = b"no json" if number % 5 == 0 else b'{"kind": "%s"}' % (b"bell" if number % 3 == 0 else b"door")
        payload = wrap(b"somebody", number, text) if number % 2 else text
        made.append(Record(STREAM, 0, number, START + number * 7_000_000, payload))
    return made


def expected(counted: list[Record], until: int) -> Counter[tuple[int, str | None]]:
    found: Counter[tuple[int, str | None]] = Counter()
    for record in counted:
        minute = record.received_at // MINUTE
        if (minute + 1) * MINUTE <= until:
            kinds = [kind for kind in ("bell", "door") if kind.encode() in record.payload]
            found[minute, kinds[0] if kinds else None] += 1
    return found


def test_it_goes_on_where_it_was(spark: Any, write_journal: Any, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("streaming_counts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    def count(path: Path) -> Counter[tuple[int, str | None]]:
        query = example.start(spark, str(path), tmp_path / "out", late="30 seconds", once=True)
        query.awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "out" / "minutes")).collect()
        found = Counter({(int(row.minute.timestamp()) // 60, row.kind): row["count"] for row in rows})
        assert len(found) == len(rows)  # No minute is written twice.
        return found

    first, more = records(1, 60), records(61, 100)
    path = write_journal(first, stream=STREAM)
    assert count(path) == expected(first, first[-1].received_at - 30_000_000)
    write_journal(more, stream=STREAM, path=path)
    both = expected(first + more, more[-1].received_at - 30_000_000)
    assert count(path) == both
    assert sum(both.values()) > 80
