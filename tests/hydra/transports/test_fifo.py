"""Streams over real named pipes, with a manual reactor and clock."""

from __future__ import annotations

import os
import select
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import (
    ConnectingCancelledError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    TimeoutError,
)
from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint, ITransport
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.hydra.transports.fifo import (
    CALL_INTERVAL,
    LINGER,
    FifoAddress,
    FifoEndpoint,
    FifoTransport,
)
from fyrehose_twisted.hydra.transports.transport import HIGH_WATERMARK

MAX_PING = 10.0


class Turns(Clock):
    """Reactor that a test runs turn by turn."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[Side] = []
        self.crashed: list[Any] = []
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()
        self.addReader, self.addWriter = self.readers.add, self.writers.add
        self.removeReader, self.removeWriter = self.readers.discard, self.writers.discard

    def settle(self) -> None:
        """Run turns until nothing is due at this time."""
        for _ in range(10_000):
            self.advance(0)
            read, write, _ = select.select(self.readers, self.writers, [], 0)
            if not read and not write:
                return
            for one in read:
                if one in self.readers:
                    one.doRead()
            for one in write:
                if one in self.writers:
                    one.doWrite()
        raise AssertionError("it does not come to rest")

    def run(self, seconds: float, step: float = 0.25) -> None:
        self.settle()
        for _ in range(round(seconds / step)):
            self.advance(step)
            self.settle()


class End(Protocol):
    """Protocol that records received data."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: BaseException | None = None

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason.value

    @property
    def lines(self) -> list[bytes]:
        """Return received lines without keepalives."""
        return [line for line in self.got.split(b"\r\n") if line]


class Side:
    """A dial and its result."""

    def __init__(self, reactor: Turns, directory: Path | str, side: int | None = None) -> None:
        endpoint = FifoEndpoint(reactor, str(directory), side, MAX_PING)
        assert verifyObject(IStreamClientEndpoint, endpoint)
        self.end: End | None = None
        self.problem: BaseException | None = None
        reactor.sides.append(self)
        self.dial = endpoint.connect(Factory.forProtocol(End))
        self.dial.addCallbacks(self._opened, self._failed)

    def _opened(self, end: Any) -> None:
        self.end = end

    def _failed(self, failure: Any) -> None:
        self.problem = failure.value

    @property
    def transport(self) -> Any:
        assert self.end is not None, self.problem
        return self.end.transport


def pair(reactor: Turns, directory: Path) -> tuple[Side, Side]:
    sides = Side(reactor, directory), Side(reactor, directory)
    reactor.settle()
    assert sides[0].end is not None
    assert sides[1].end is not None
    return sides


def crash(reactor: Turns, transport: FifoTransport) -> None:
    """Drop a transport as a killed process does."""
    reactor.crashed.append(transport._pair)
    reactor.removeReader(transport._reader)
    reactor.removeWriter(transport._writer)
    transport._timer.cancel()
    transport._pair.close()


def held(directory: Path | str) -> list[str]:
    """Return descriptors of this process that belong to a directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The descriptor of the listing itself is closed.
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(one for one in found if one.startswith(str(directory)))


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "link"


@pytest.fixture
def reactor() -> Iterator[Turns]:
    """Return a reactor whose pipes are closed after the test."""
    made = Turns()
    yield made
    for side in made.sides:
        if side.end is None:
            side.dial.cancel()
        elif side.end.lost is None and side.transport._pair not in made.crashed:
            crash(made, side.transport)


def test_fifo_link_carries_lines_both_ways_and_reports_its_close(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    assert held(link) != []
    assert verifyObject(ITransport, one.transport)
    assert verifyObject(IConsumer, one.transport)
    assert (one.transport.getHost(), one.transport.getPeer()) == (FifoAddress(str(link), 0), FifoAddress(str(link), 1))
    assert other.transport.getHost() == one.transport.getPeer()
    one.transport.write(b"HELLO 1 2\r\nHEL")
    other.transport.writeSequence([b"KNOCK 7 x\r\n", b"KNOCK 8 y\r\n"])
    reactor.settle()
    assert other.end is not None
    assert one.end is not None
    assert (one.end.got, other.end.got) == (b"KNOCK 7 x\r\nKNOCK 8 y\r\n", b"HELLO 1 2\r\n")
    one.transport.write(b"LO 3 4\r\n")
    one.transport.loseConnection()
    one.transport.write(b"too late\r\n")
    reactor.settle()
    assert other.end.got == b"HELLO 1 2\r\nHELLO 3 4\r\n"
    assert isinstance(one.end.lost, ConnectionDone)
    assert isinstance(other.end.lost, ConnectionDone)
    assert held(link) == []
    assert not reactor.getDelayedCalls()
    assert not reactor.readers | reactor.writers


def test_fifo_files_are_private_to_their_user(reactor: Turns, link: Path) -> None:
    before = os.umask(0)
    try:
        Side(reactor, link).dial.cancel()
    finally:
        os.umask(before)
    assert oct(link.stat().st_mode & 0o777) == "0o700"
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in link.iterdir()} == {
        "0to1": "0o600",
        "1to0": "0o600",
        "side0": "0o600",
    }


def test_fifo_dial_waits_for_the_other_side_and_can_be_cancelled(reactor: Turns, link: Path) -> None:
    alone = Side(reactor, link)
    reactor.run(60)
    assert alone.end is alone.problem is None
    alone.dial.cancel()
    assert isinstance(alone.problem, ConnectingCancelledError)
    assert held(link) == []
    assert not reactor.getDelayedCalls()
    late = Side(reactor, link)
    reactor.run(5)
    assert late.end is None
    assert Side(reactor, link) is not None
    reactor.run(CALL_INTERVAL)
    assert late.end is not None


def test_unread_fifo_dials_do_not_accumulate(reactor: Turns, link: Path) -> None:
    for _ in range(50):
        alone = Side(reactor, link)
        reactor.run(20, step=0.5)
        alone.dial.cancel()
    alone = Side(reactor, link)
    probe = os.open(link / "0to1", os.O_RDWR | os.O_NONBLOCK)
    assert os.read(probe, 65_536).count(b"\n") == 1
    os.close(probe)
    alone.dial.cancel()


def test_fifo_data_of_an_earlier_session_is_discarded(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    session, peer = one.transport.session, other.transport.session
    reactor.readers.clear()  # Both ends stop reading.
    for number in range(300):
        one.transport.write(b"OLD %d\r\n" % number)
        other.transport.write(b"OLD %d\r\n" % number)
        for writer in tuple(reactor.writers):
            writer.doWrite()
    held = [os.open(link / name, os.O_RDWR | os.O_NONBLOCK) for name in ("0to1", "1to0")]
    for descriptor in held:  # A torn line, and messages of closed sessions.
        os.write(descriptor, b"\0FIFO %b %b\r\nSTALE\r\n\0FIFO %b %b\r\nSTALE\r\nTOR" % (session, peer, peer, session))
    for transport in one.transport, other.transport:
        crash(reactor, transport)
    one, other = pair(reactor, link)
    one.transport.write(b"NEW 1\r\n")
    other.transport.write(b"NEW 2\r\n")
    reactor.run(3)
    assert one.end is not None
    assert other.end is not None
    assert (one.end.lines, other.end.lines) == ([b"NEW 2"], [b"NEW 1"])
    for descriptor in held:
        os.close(descriptor)


def test_fifo_dial_of_an_exited_process_opens_no_link(reactor: Turns, link: Path) -> None:
    Side(reactor, link, 0).dial.cancel()
    Side(reactor, link, 1).dial.cancel()
    held = os.open(link / "1to0", os.O_RDWR | os.O_NONBLOCK)
    os.write(held, b"\0FIFO 0123456789abcdef -\r\nSTALE\r\n")
    alone = Side(reactor, link, 0)
    reactor.run(5)
    os.close(held)
    assert alone.end is None
    alone.dial.cancel()


def test_partial_fifo_line_of_a_killed_process_is_not_delivered(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    os.write(one.transport._pair.outgoing, b"WHOLE\r\nTOR")
    reactor.settle()
    crash(reactor, one.transport)
    again = Side(reactor, link, 0)
    reactor.settle()
    assert other.end is not None
    assert other.end.got == b"WHOLE\r\n"
    assert isinstance(other.end.lost, ConnectionLost)
    assert again.end is None


def test_reopened_fifo_side_ends_the_previous_link(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    crash(reactor, one.transport)
    again = Side(reactor, link)
    reactor.settle()
    assert other.end is not None
    assert isinstance(other.end.lost, ConnectionLost)
    assert again.end is None
    other = Side(reactor, link)
    reactor.settle()
    assert again.end is not None
    again.transport.write(b"HELLO\r\n")
    reactor.settle()
    assert other.end is not None
    assert other.end.got == b"HELLO\r\n"


def test_fifo_keepalives_keep_a_link_and_silence_ends_it(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    reactor.run(10 * MAX_PING)
    assert one.end is not None
    assert other.end is not None
    assert one.end.lost is other.end.lost is None
    assert set(other.end.got.split(b"\r\n")) == {b""}
    assert 20 <= other.end.got.count(b"\n") <= 40
    crash(reactor, one.transport)
    reactor.run(MAX_PING / 2)
    assert other.end.lost is None
    reactor.run(MAX_PING)
    assert isinstance(other.end.lost, TimeoutError)


def test_fifo_keepalive_does_not_split_a_partial_line(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    one.transport.write(b"HEL")
    reactor.run(2 * MAX_PING)
    one.transport.write(b"LO\r\n")
    reactor.settle()
    assert other.end is not None
    assert other.end.lines == [b"HELLO"]


@pytest.mark.parametrize("replace", [False, True])
def test_removed_fifo_ends_the_link_and_is_created_again(reactor: Turns, link: Path, replace: bool) -> None:
    one, other = pair(reactor, link)
    (link / "0to1").unlink()
    if replace:
        os.mkfifo(link / "0to1", 0o600)
    reactor.run(2)
    assert one.end is not None
    assert other.end is not None
    # The end that detects it first tells the other one if a pipe is left.
    assert isinstance(one.end.lost, ConnectionLost)
    assert isinstance(other.end.lost, ConnectionLost | ConnectionDone)
    pair(reactor, link)


def test_fifo_directory_with_other_files_or_open_permissions_is_refused(reactor: Turns, tmp_path: Path) -> None:
    def problem_of(directory: Path, side: int | None = None) -> BaseException | None:
        return Side(reactor, directory, side).problem

    file = tmp_path / "file"
    file.write_bytes(b"")
    assert "is not a directory" in str(problem_of(file))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "chmod 700" in str(problem_of(tmp_path / "open"))
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "0to1").write_bytes(b"")
    problem = problem_of(tmp_path / "odd")
    assert isinstance(problem, ConfigurationError)
    assert "is not a named pipe; remove it" in str(problem)
    (tmp_path / "loose").mkdir()
    os.mkfifo(tmp_path / "loose" / "1to0")
    (tmp_path / "loose" / "1to0").chmod(0o622)
    assert "chmod 600" in str(problem_of(tmp_path / "loose"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "0to1").symlink_to(tmp_path / "loose" / "1to0")
    assert "is not a named pipe" in str(problem_of(tmp_path / "linked"))
    assert isinstance(problem_of(tmp_path / "no" / "such"), OperationalError)
    with pytest.raises(ConfigurationError, match="is not 0 or 1"):
        FifoEndpoint(reactor, str(tmp_path), 2)
    assert held(tmp_path) == []


def test_fifo_side_in_use_is_refused(reactor: Turns, link: Path) -> None:
    pair(reactor, link)
    third = Side(reactor, link)
    assert isinstance(third.problem, OperationalError)
    assert "side 0 and 1 of" in str(third.problem)
    assert "side 1 of" in str(Side(reactor, link, 1).problem)


class Pushing:
    """Producer of lines that pauses on request."""

    def __init__(self, transport: Any, total: int) -> None:
        self.transport, self.total = transport, total
        self.written = 0
        self.pauses = 0
        self.paused = False
        transport.registerProducer(self, True)

    def resumeProducing(self) -> None:
        self.paused = False
        while not self.paused and self.written < self.total:
            self.transport.write(b"SEND 7 PRIVMSG #c :%d\r\n" % self.written)
            self.written += 1

    def pauseProducing(self) -> None:
        self.paused = True
        self.pauses += 1

    def stopProducing(self) -> None:
        self.total = 0


def test_full_fifo_pauses_the_producer(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    reading = other.transport._reader
    reactor.removeReader(reading)
    pushing = Pushing(one.transport, 50_000)
    pushing.resumeProducing()
    for _ in range(50):
        for writer in tuple(reactor.writers):
            if select.select([], [writer], [], 0)[1]:
                writer.doWrite()
    assert pushing.paused
    assert 0 < len(one.transport._waiting) <= HIGH_WATERMARK + 100
    reactor.addReader(reading)
    reactor.settle()
    assert pushing.written == 50_000
    assert pushing.pauses > 1
    assert other.end is not None
    assert other.end.lines == [b"SEND 7 PRIVMSG #c :%d" % number for number in range(50_000)]
    one.transport.unregisterProducer()
    one.transport.loseConnection()
    reactor.settle()
    assert isinstance(other.end.lost, ConnectionDone)


def test_unread_fifo_data_is_discarded_after_the_linger_time(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    reactor.removeReader(other.transport._reader)
    one.transport.write(b"SEND 7 PRIVMSG #c :something\r\n" * 10_000)
    one.transport.loseConnection()
    reactor.run(LINGER + 2)
    assert one.end is not None
    assert isinstance(one.end.lost, ConnectionDone)


def test_slow_fifo_reader_receives_all_data_written_before_the_close(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    reading = other.transport._reader
    reactor.removeReader(reading)
    one.transport.write(b"SEND 7 PRIVMSG #c :something\r\n" * 10_000)
    one.transport.loseConnection()
    assert one.end is not None
    assert other.end is not None
    took = 0.0
    while one.end.lost is None:
        # It reads a part, and then nothing for nearly the linger time.
        other.transport._read()
        reactor.run(0.6 * LINGER)
        took += 0.6 * LINGER
    assert took > 2 * LINGER
    reactor.addReader(reading)
    reactor.settle()
    assert len(other.end.lines) == 10_000
    assert isinstance(one.end.lost, ConnectionDone)
    assert isinstance(other.end.lost, ConnectionDone)


def test_aborted_fifo_link_closes_at_both_ends(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    one.transport.abortConnection()
    reactor.settle()
    assert one.end is not None
    assert other.end is not None
    assert isinstance(one.end.lost, ConnectionAborted)
    assert isinstance(other.end.lost, ConnectionDone)


def test_line_over_the_pipe_buffer_size_ends_the_fifo_link(reactor: Turns, link: Path) -> None:
    one, other = pair(reactor, link)
    one.transport.write(b"x" * select.PIPE_BUF + b"\r\n")
    reactor.settle()
    assert one.end is not None
    assert isinstance(one.end.lost, ConnectionLost)
    one, other = pair(reactor, link)
    os.write(one.transport._pair.outgoing, b"x" * 60_000)
    reactor.settle()
    os.write(one.transport._pair.outgoing, b"x" * 60_000)
    reactor.settle()
    assert other.end is not None
    assert isinstance(other.end.lost, ConnectionLost)


@given(st.integers(0, 2**32))
def test_fifo_stream_is_a_part_of_one_session_despite_crashes(seed: int) -> None:
    rng, reactor = Random(seed), Turns()
    with tempfile.TemporaryDirectory() as directory:
        sides: list[Side | None] = [None, None]
        written: dict[bytes, int] = {}
        ends: list[tuple[bytes, End]] = []

        def note(side: Side | None) -> None:
            if side is not None and side.end is not None and all(side.end is not end for _, end in ends):
                ends.append((side.transport.session, side.end))

        for _ in range(120):
            which = rng.randrange(2)
            side = sides[which]
            note(side)
            if side is None or side.problem is not None or (side.end is not None and side.end.lost is not None):
                sides[which] = Side(reactor, directory, rng.choice((None, which)))
            elif side.end is None:
                if rng.random() < 0.1:
                    side.dial.cancel()
            else:
                chance, session = rng.random(), side.transport.session
                if chance < 0.05:
                    crash(reactor, side.transport)
                    sides[which] = None
                elif chance < 0.1:
                    side.transport.loseConnection()
                elif not side.transport.disconnecting:
                    for _ in range(rng.choice((1, 10, 1_000))):
                        written[session] = written.get(session, -1) + 1
                        side.transport.write(b"%b %d\r\n" % (session, written[session]))
            for _ in range(rng.randrange(6)):
                pipes = sorted(reactor.readers | reactor.writers, key=lambda pipe: pipe.fileno())
                if not pipes:
                    break
                pipe = [rng.choice(pipes)]
                if pipe[0] in reactor.readers and select.select(pipe, [], [], 0)[0]:
                    pipe[0].doRead()
                elif pipe[0] in reactor.writers and select.select([], pipe, [], 0)[1]:
                    pipe[0].doWrite()
            if rng.random() < 0.3:
                reactor.advance(rng.choice((0.0, 0.3, 1.0)))
        reactor.run(3)
        for side in sides:
            note(side)
        streams = [[line.split() for line in end.lines] for _, end in ends]
        assert all(end.got.endswith(b"\n") for _, end in ends if end.got)
        for lines in streams:
            assert len({session for session, _ in lines}) <= 1
            assert [int(number) for _, number in lines] == list(range(len(lines)))
        heard = [lines[0][0] for lines in streams if lines]
        assert len(heard) == len(set(heard)), "two streams got lines of one session"
        for side in sides:
            if side is not None and side.end is not None and side.end.lost is None:
                crash(reactor, side.transport)
            elif side is not None:
                side.dial.cancel()
        reactor.settle()
        assert held(directory) == []
