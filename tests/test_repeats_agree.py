"""Agreement of all readers of a stream on its repeats."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import ClientCounters, MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.delivery_queue import DeliveryQueue
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MessageRun
from fyrehose_twisted.fyrehose.wire.envelope import unwrap, wrap
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, decode_term_start, encode_term_start
from fyrehose_twisted.journal.cli.cat import RecordPrinter, StreamPosition
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.repeat_marking import RepeatMarker
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.payloads import envelope_finder, strip_framing
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.records.query_params import EpochPosition, RecordQuery
from fyrehose_twisted.query.records.scans import RangeScan
from fyrehose_twisted.record import Record
from fyrehose_twisted.repeats import WINDOW

STREAM = "fyrehose://test"
PUBLISHERS = b"someones", b"another1"

groups = st.tuples(
    # Numbers lost before the group: none, or about the repeat window.
    st.sampled_from([0, 0, 1, 5]) | st.integers(WINDOW - 12, WINDOW + 3),
    # Publisher, first counter and length of a run; a message without an envelope in place of publisher 2, and the start
    # of a term in place of publisher 3, which every second one only resembles.
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=4),
)
streams = st.lists(groups, min_size=1, max_size=5)

Stream = list[tuple[int, list[tuple[int, int, int]]]]


def numbered(stream: Stream) -> dict[int, bytes]:
    """Return the messages of a stream by number."""
    messages: dict[int, bytes] = {}
    number = 1
    for lost, runs in stream:
        number += lost
        for publisher, counter, length in runs:
            for row in range(length):
                text = b"%d:%d" % (publisher, counter + row)
                envelope = b"" if publisher >= 2 else wrap(PUBLISHERS[publisher], counter + row, b"")
                messages[number] = envelope + text
                if publisher == 3:
                    messages[number] = start_of_term(number, is_real=(counter + row) % 2 == 0)
                number += 1
    return messages


def start_of_term(number: int, *, is_real: bool) -> bytes:
    first = number if is_real else number + 1
    return encode_term_start(TermStart(1 + number % 3, first - 1, first))


def repeats_of(messages: dict[int, bytes]) -> set[int]:
    """Return the numbers of repeats, and of starts of terms, by definition."""
    starts = {number for number, data in messages.items() if decode_term_start(number, data) is not None}
    return starts | {
        number
        for number, data in messages.items()
        if unwrap(data) is not None
        and any(
            unwrap(earlier) == unwrap(data) and 0 < number - before <= WINDOW for before, earlier in messages.items()
        )
    }


def keep(path: Path, messages: dict[int, bytes]) -> Path:
    """Write a journal with missing numbers declared lost; return its directory."""
    with closing(open_journal(path, STREAM)) as journal:
        before = 0
        for number, data in messages.items():
            if number > before + 1:
                journal.lose(0, before + 1, number - 1)
            journal.append([Record(STREAM, 0, number, 10**15 + number, data)])
            before = number
        journal.commit()
    return path / "fyrehose-test"


def catted(reader: JournalReader, **options: Any) -> list[dict[str, Any]]:
    printed: list[bytes] = []
    marker = RepeatMarker(reader, envelope_finder(STREAM))
    RecordPrinter(
        reader, printed.append, lambda text: None, strip_framing=strip_framing, marker=marker, as_json=True, **options
    ).run()
    return [json.loads(line) for line in b"".join(printed).splitlines()]


def searched(sources: JournalDirectory, **selection: Any) -> list[dict[str, Any]]:
    source = sources.get("fyrehose-test")
    assert source is not None
    search = RangeScan(source, sources, RecordQuery(**selection), QueryConfig())
    for _ in search.steps():
        pass
    return [json.loads(item.text(False)) for item in search.records]


def subscribed(messages: dict[int, bytes]) -> list[int]:
    counters = ClientCounters()
    outbox = SendQueue(ClientConfig().outbox, b"nobodyyy")
    deliveries = DeliveryQueue(Deduplicator(outbox, counters, raw=False), counters)
    deliveries.has_terms = True
    numbers: list[int] = []
    for number, data in messages.items():
        deliveries.add(MessageRun(number, [data], [0]))
        while (event := deliveries.take()) is not None:
            if isinstance(event, MessagesDelivered):
                numbers += [message.sequence for message in event.messages]
    return numbers


def numbers_of(records: list[dict[str, Any]]) -> list[int]:
    return [record["sequence"] for record in records]


@given(streams, st.integers(0, 30), st.integers(1, 12))
def test_subscribers_query_and_journal_cat_leave_out_the_same_repeats(stream: Stream, start: int, count: int) -> None:
    messages = numbered(stream)
    repeats = repeats_of(messages)
    shown = [number for number in messages if number not in repeats]
    begin = list(messages)[start % len(messages)]
    assert subscribed(messages) == shown
    with TemporaryDirectory() as directory:
        path = Path(directory)
        keep(path, messages)
        sources = JournalDirectory(path, strip_framing, envelope_finder=envelope_finder)
        sources.refresh()
        with closing(open_reader(path / "fyrehose-test")) as reader, closing(sources):
            later = [number for number in shown if number >= begin]
            # The start in the middle first, where the reader has not seen earlier messages.
            assert numbers_of(searched(sources, first=EpochPosition(0, begin), limit=count)) == later[:count]
            assert numbers_of(catted(reader, start=StreamPosition(begin, False), count=count)) == later[:count]
            assert numbers_of(searched(sources, newest=count)) == shown[-count:]
            assert numbers_of(searched(sources)) == numbers_of(catted(reader)) == shown
            for records in (searched(sources, repeats=True), catted(reader, repeats=True)):
                assert numbers_of(records) == list(messages)
                assert {record["sequence"] for record in records if record.get("repeat")} == repeats
