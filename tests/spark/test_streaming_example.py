"""Structured Streaming example."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.record import Record

EXAMPLE = Path(__file__).parents[2] / "examples" / "streaming_counts.py"
STREAM = "fyrehose://doors"
MINUTE = 60_000_000
START = 28_333_334 * MINUTE


def records(first: int, last: int) -> list[Record]:
    """Return messages seven seconds apart; every third is a bell, every fifth is not JSON."""
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


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("streaming_counts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(example: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a function that runs the example and returns its exit status or message."""

    def running(*arguments: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["streaming_counts", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            example.main()
        return exited.value.code

    before = signal.getsignal(signal.SIGINT)
    yield running
    signal.signal(signal.SIGINT, before)


def test_errors_of_the_streaming_example_are_one_line(run: Any, write_journal: WriteJournal, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert run(nowhere, tmp_path / "out") == f"streaming_counts: there is no journal at {nowhere}: no such directory"
    path = write_journal(records(1, 2), stream=STREAM)
    assert "Unable to parse 'soon'" in run(path, tmp_path / "out", "--late", "soon")
    (tmp_path / "file").touch()
    assert "file" in run(path, tmp_path / "file", "--once")
    assert run("", tmp_path / "out") == 2


def test_an_interrupt_ends_the_streaming_example_cleanly(
    example: Any,
    run: Any,
    spark: Any,
    write_journal: WriteJournal,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = example.start

    def start_and_interrupt(*arguments: Any, **options: Any) -> Any:
        query = start(*arguments, **options)
        query.processAllAvailable()
        signal.raise_signal(signal.SIGINT)
        return query

    monkeypatch.setattr(example, "start", start_and_interrupt)
    path = write_journal(records(1, 60), stream=STREAM)
    assert run(path, tmp_path / "out") == "streaming_counts: interrupted; start it again, and it goes on"
    assert spark.streams.active == []
    assert "|bell|" in capsys.readouterr().out.replace(" ", "")


def test_the_streaming_example_continues_at_its_checkpoint(
    example: Any, spark: Any, write_journal: WriteJournal, tmp_path: Path
) -> None:
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
