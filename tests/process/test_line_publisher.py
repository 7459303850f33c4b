"""Input lines become messages, however the input is split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, NotConnected
from fyrehose_twisted.process.line_publisher import READ_BYTES, InputReader, LinePublisher

LIMIT = 8


class Recorder(LinePublisher):
    """Publisher of at most three lines at once, whose lines a test settles."""

    def __init__(self) -> None:
        super().__init__(LIMIT, "messages", 3)
        self.batches: list[tuple[int, list[bytes]]] = []
        self.room: Deferred[None] | None = None
        self.error: FyrehoseError | None = None

    async def when_room(self) -> None:
        """Wait as a test says."""
        if self.room is not None:
            await self.room

    def publish_lines(self, lines: Sequence[bytes], first: int) -> None:
        """Record a batch."""
        if self.error is not None:
            raise self.error
        self.batches.append((first, list(lines)))

    def settle(self) -> None:
        """Report that all lines are published."""
        for first, lines in self.batches:
            for number in range(first, first + len(lines)):
                self.line_published(number, number)


def recorder() -> Recorder:
    lines = Recorder()
    lines.makeConnection(StringTransport())
    return lines


@pytest.fixture
def lines() -> Iterator[Recorder]:
    """Return a publisher of lines."""
    lines = recorder()
    yield lines
    lines.stop("the test has ended")


def test_complete_lines_are_published_at_once_in_batches(lines: Recorder) -> None:
    lines.dataReceived(b"1\n2\n3\n4\n5")
    assert lines.batches == [(1, [b"1", b"2", b"3"]), (4, [b"4"])]
    lines.dataReceived(b"\n")
    assert lines.batches[2:] == [(5, [b"5"])]


def test_a_line_that_is_too_long_is_reported_by_its_number_and_left_out(lines: Recorder) -> None:
    lines.dataReceived(b"1\n2\n" + bytes(LIMIT + 1) + b"\n4\n")
    assert lines.batches == [(1, [b"1", b"2"]), (4, [b"4"])]
    assert str(lines.problem).startswith("line 3: ")
    assert lines.lines_read == 4


def test_input_is_done_when_each_line_is_published_or_has_failed(lines: Recorder) -> None:
    lines.dataReceived(b"1\n2\n3\n4\n")
    lines.connectionLost(None)
    for number in (1, 3, 4):
        lines.line_published(number, number)
    assert not lines.done.called
    error = NotConnected("gone")
    lines.line_failed(2, error)
    assert lines.done.called
    assert (lines.published, lines.problem) == (3, error)


def test_a_batch_that_cannot_be_published_is_not_waited_for(lines: Recorder) -> None:
    lines.error = NotConnected("gone")
    lines.dataReceived(b"1\n2\n")
    lines.connectionLost(None)
    assert lines.done.called
    assert lines.problem == "line 1: gone"


def test_no_line_is_published_without_room(lines: Recorder) -> None:
    lines.room = room = Deferred()
    lines.dataReceived(b"1\n2\n")
    lines.dataReceived(b"3\n")
    assert lines.batches == []
    lines.room = None
    room.callback(None)
    assert lines.batches == [(1, [b"1", b"2"]), (3, [b"3"])]


@given(st.lists(st.binary(max_size=12)))
def test_splits_of_the_input_do_not_matter(pieces: list[bytes]) -> None:
    whole, split = recorder(), recorder()
    text = b"\n".join(pieces)
    whole.dataReceived(text)
    for piece in pieces[:1] + [b"\n" + piece for piece in pieces[1:]]:
        for start in range(len(piece)):
            split.dataReceived(piece[start : start + 1])
    for lines in (whole, split):
        lines.connectionLost(None)
        lines.settle()
        assert lines.done.called
    assert [line for _, batch in whole.batches for line in batch] == [
        line for _, batch in split.batches for line in batch
    ]
    assert str(whole.problem) == str(split.problem)
    assert whole.lines_read == split.lines_read


class Sink(Protocol):
    """Protocol that records what it receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: list[Failure | None] = []

    def dataReceived(self, data: bytes) -> None:
        """Record data."""
        self.received.append(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Record the end."""
        self.lost.append(reason)


def test_reader_takes_all_that_a_pipe_holds_and_reports_its_end() -> None:
    reactor = MemoryReactor()

    def turn() -> None:
        for reader in reactor.getReaders():
            if (lost := reader.doRead()) is not None:
                reader.connectionLost(Failure(lost))

    output, pipe = os.pipe()
    sink = Sink()
    reader = InputReader(sink, output, reactor)
    try:
        os.write(pipe, b"typed\n")
        turn()
        assert sink.received == [b"typed\n"]
        turn()
        assert sink.received == [b"typed\n"]
        os.write(pipe, bytes(READ_BYTES))
        reader.pauseProducing()
        turn()
        assert len(sink.received) == 1
        reader.resumeProducing()
        turn()
        assert list(map(len, sink.received)) == [6, READ_BYTES]
        os.close(pipe)
        turn()
        assert len(sink.lost) == 1
        assert reactor.getReaders() == []
    finally:
        os.close(output)
