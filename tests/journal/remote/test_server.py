from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.internet.threads import deferToThread

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IJournal, IJournalReader
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.journal.remote.server import (
    JournalServerFactory,
    ServingLimits,
    frame_sized_blocks,
    journal_endpoint,
)
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM, EPOCH = "test://stream", 3
SECRET = b"a secret of some length"
DEADLINE = 120.0


def records(first: int, last: int, size: int = 10) -> list[Record]:
    return [Record(STREAM, EPOCH, number, number, b"%d" % number * size) for number in range(first, last + 1)]


MakeJournal = Callable[..., IJournal]


@pytest.fixture(params=["memory", "disk"])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeJournal]:
    """Return a factory of journals in memory and on disk, with records committed in groups."""
    made: list[Any] = []

    def make(*groups: list[Record], retention: Retention | None = None) -> IJournal:
        if request.param == "memory":
            journal: Any = MemoryJournal(STREAM, retention=retention)
        else:
            config = JournalConfig(segment_bytes=4_096, retention=retention or Retention())
            journal = Journal(LocalDirectory(tmp_path), STREAM, config=config)
        made.append(journal)
        for group in groups:
            journal.append(group)
            journal.commit()
        return journal  # type: ignore[no-any-return]

    yield make
    for journal in made:
        journal.close()


class Transport(StringTransport):
    """A transport that records its end and accepts written data only on request."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        super().abortConnection()


class Caller:
    """A client without a network that feeds a protocol directly."""

    def __init__(self, factory: JournalServerFactory, host: str = "10.0.0.1") -> None:
        self.transport = Transport()
        self.protocol = factory.buildProtocol(IPv4Address("TCP", host, 1))
        self.decoder = wire.answer_decoder()
        self.protocol.makeConnection(self.transport)

    def say(self, *messages: wire.Message | bytes) -> None:
        data = b"".join(one if isinstance(one, bytes) else wire.encode(one) for one in messages)
        self.protocol.dataReceived(data)

    def heard(self) -> list[Any]:
        """Return the answers since the last call, without accepting more."""
        data = self.transport.value()
        self.transport.clear()
        return self.decoder.feed(data)

    def listen(self) -> list[Any]:
        """Accept all pending data."""
        found = self.heard()
        while self.transport.producer is not None:
            self.transport.producer.resumeProducing()
            found += self.heard()
        return found

    def ask(self, *requests: wire.Message) -> list[Any]:
        self.say(*requests)
        return self.listen()

    def read(self, first: int, last: int, limit: int = 2**30, **more: Any) -> list[Any]:
        return self.ask(wire.Read(1, STREAM, EPOCH, first, last, limit, more.get("skip", False)))

    @property
    def gone(self) -> bool:
        return self.transport.disconnecting or self.transport.aborted

    def leave(self) -> None:
        from twisted.internet.protocol import connectionDone

        self.protocol.connectionLost(connectionDone)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def server(
    clock: Any, *readers: IJournalReader, secret: bytes | None = None, **limits: Any
) -> tuple[JournalServerFactory, dict[str, IJournalReader]]:
    served = {reader.stream: reader for reader in readers}
    return JournalServerFactory(lambda: served, secret, ServingLimits(**limits), reactor=clock), served


def admitted(factory: JournalServerFactory, **more: Any) -> Caller:
    caller = Caller(factory, **more)
    (greeting,) = caller.heard()
    mac = b"" if factory.secret is None else wire.proof(factory.secret, greeting.nonce)
    caller.say(wire.Hello(wire.VERSION, mac))
    assert caller.heard() == [wire.Welcome(wire.VERSION)]
    return caller


def received_rows(parts: list[Any]) -> list[tuple[int, bytes]]:
    """Return the records of an answer, whose parts must be contiguous."""
    found: list[tuple[int, bytes]] = []
    for before, part in zip([None, *parts], parts, strict=False):
        assert before is None or (part.first == before.next and not before.end)
        for block in wire.blocks_of(part, STREAM, EPOCH):
            found += zip(block.positions.tolist(), block.payloads(), strict=True)
    assert parts[-1].end
    return found


def expected_rows(these: list[Record]) -> list[tuple[int, bytes]]:
    return [(one.sequence, one.payload) for one in these]


def test_streams_are_listed_with_their_bounds(clock: Clock, make_journal: MakeJournal) -> None:
    other = MemoryJournal("test://other", wrap=1_000)
    journal = make_journal(records(5, 9), records(11, 12))
    factory, _ = server(clock, journal, other)
    (answer,) = admitted(factory).ask(wire.ListStreams(7))
    infos = wire.StreamInfo("test://other", 1_000, ()), wire.StreamInfo(STREAM, 0, (wire.EpochInfo(EPOCH, 5, 10, 12),))
    assert answer == wire.Streams(7, infos, True, (other.tag, journal.tag))


def test_many_streams_and_epochs_are_listed_in_several_messages(clock: Clock) -> None:
    many = MemoryJournal("test://many")
    for epoch in range(2_000):
        many.begin(epoch, 0)
        many.append([Record("test://many", epoch, 0, 0, b"")])
    many.commit()
    others = [MemoryJournal(f"test://{number}") for number in range(600)]
    factory, served = server(clock, many, *others)
    answers = admitted(factory).ask(wire.ListStreams(7))
    assert [answer.end for answer in answers] == [False] * (len(answers) - 1) + [True]
    infos = [info for answer in answers for info in answer.streams]
    assert {info.stream for info in infos} == set(served)
    assert [row.epoch for info in infos if info.stream == "test://many" for row in info.epochs] == list(range(2_000))


def test_no_records_beyond_the_watermark_are_served(clock: Clock, make_journal: MakeJournal) -> None:
    journal = make_journal(records(1, 5), records(7, 9))
    journal.append(records(10, 12))
    journal.commit(sync=False)
    caller = admitted(server(clock, journal)[0])
    assert received_rows(parts := caller.read(1, 100)) == expected_rows(records(1, 5))
    assert parts[-1].next == 6
    assert received_rows(parts := caller.read(7, 9)) == []
    assert parts[-1].next == 7
    journal.append(records(6, 6))
    journal.commit()
    assert received_rows(caller.read(6, 100)) == expected_rows(records(6, 12))


def test_a_requested_range_is_served_exactly(clock: Clock, make_journal: MakeJournal) -> None:
    caller = admitted(server(clock, make_journal(*(records(10 * group, 10 * group + 9) for group in range(1, 10))))[0])
    assert received_rows(parts := caller.read(15, 47)) == expected_rows(records(15, 47))
    assert (parts[0].first, parts[-1].next) == (15, 48)


def test_an_answer_is_limited_and_names_the_next_position(clock: Clock, make_journal: MakeJournal) -> None:
    groups = [records(1_000 * group, 1_000 * group + 999, 100) for group in range(10)]
    caller = admitted(server(clock, make_journal(*groups), chunk=10_000)[0])
    found, position, sizes = [], 0, []
    while position < 10_000:
        found += received_rows(parts := caller.read(position, 20_000, 50_000))
        sizes.append(sum(len(part.frames) for part in parts))
        position = parts[-1].next
    assert all(50_000 <= size < 80_000 for size in sizes[:-1])
    assert 0 < sizes[-1] < 80_000
    assert found == expected_rows([record for group in groups for record in group])


def test_small_groups_are_served_as_large_frames(clock: Clock, make_journal: MakeJournal) -> None:
    journal = make_journal(*(records(10 * group, 10 * group + 9, 1) for group in range(1_000)))
    parts = admitted(server(clock, journal)[0]).read(0, 10_000)
    blocks = [block for part in parts for block in wire.blocks_of(part, STREAM, EPOCH)]
    assert [len(block) >= 4_096 for block in blocks] == [True, True, False]


def test_large_frames_are_split_into_chunks(clock: Clock, make_journal: MakeJournal) -> None:
    whole = records(0, 2_000, 25)
    parts = admitted(server(clock, make_journal(whole), chunk=5_000)[0]).read(0, 2_000)
    assert received_rows(parts) == expected_rows(whole)
    sizes = [len(block.payload) for part in parts for block in wire.blocks_of(part, STREAM, EPOCH)]
    assert max(sizes) < 5_100
    assert len(sizes) < 60


def test_a_record_larger_than_a_chunk_is_served_whole(clock: Clock, make_journal: MakeJournal) -> None:
    large = Record(STREAM, EPOCH, 2, 0, b"x" * 100_000)
    these = [*records(1, 1), large, *records(3, 3)]
    assert received_rows(admitted(server(clock, make_journal(these), chunk=1_000)[0]).read(1, 3)) == expected_rows(
        these
    )


def test_distant_records_are_served_in_separate_frames() -> None:
    far = 2**40
    blocks = []
    for position in (0, 5, far, 2 * far):
        (record,) = records(position, position, 1)
        journal = MemoryJournal(STREAM)
        journal.append([record])
        journal.commit()
        blocks += list(journal.read(EPOCH, position, position))
    found = [block for block in frame_sized_blocks(blocks, 1_000) if block is not None]
    assert [block.positions.tolist() for block in found] == [[0, 5], [far], [2 * far]]


def test_a_large_gap_is_served_with_few_reads(clock: Clock) -> None:
    asked: list[int] = []

    class Watched(MemoryJournal):
        def read(self, epoch: int, first: int, last: int, on_damage: Any = None) -> Iterator[Block]:
            asked.append(first)
            assert len(asked) < 100
            return super().read(epoch, first, last, on_damage)

    journal, far = Watched(STREAM), 2**40
    journal.append(records(0, 9))
    journal.lose(EPOCH, 10, far - 1)
    journal.append(records(far, far + 9))
    journal.commit()
    parts = admitted(server(clock, journal)[0]).read(0, far + 100)
    assert received_rows(parts) == expected_rows(records(0, 9) + records(far, far + 9))
    assert [pair for part in parts for pair in part.losses] == [(10, far - 1)]


def test_declared_losses_are_served_with_the_records(clock: Clock, make_journal: MakeJournal) -> None:
    journal = make_journal(records(1, 5), records(20, 25))
    journal.lose(EPOCH, 6, 19)
    journal.lose(EPOCH, 26, 30)
    journal.commit()
    caller = admitted(server(clock, journal)[0])
    assert received_rows(parts := caller.read(3, 100)) == expected_rows(records(3, 5) + records(20, 25))
    assert [pair for part in parts for pair in part.losses] == [(6, 19), (26, 30)]
    assert received_rows(parts := caller.read(8, 12)) == []
    assert [pair for part in parts for pair in part.losses] == [(8, 12)]
    assert parts[-1].next == 13
    assert caller.ask(wire.ListRanges(4, STREAM, EPOCH, 1, 28, True)) == [
        wire.Ranges(4, 1, 29, True, ((6, 19), (26, 28)))
    ]
    assert caller.ask(wire.ListRanges(5, STREAM, EPOCH, 4, 99, False)) == [
        wire.Ranges(5, 4, 31, True, ((4, 5), (20, 25)))
    ]


def test_many_losses_are_served_in_several_messages(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_RANGES", 150)
    journal, count = MemoryJournal(STREAM), wire.MAX_RANGES + 100
    journal.append([record for position in range(count) for record in records(2 * position, 2 * position, 1)])
    for position in range(count - 1):
        journal.lose(EPOCH, 2 * position + 1, 2 * position + 1)
    journal.commit()
    lost = [(2 * position + 1, 2 * position + 1) for position in range(count - 1)]
    caller = admitted(server(clock, journal, chunk=2**30)[0])
    asked = caller.ask(wire.ListRanges(4, STREAM, EPOCH, 0, 2 * count, True))
    assert [len(part.ranges) for part in asked] == [wire.MAX_RANGES, 99]
    assert [pair for part in asked for pair in part.ranges] == lost
    parts = caller.read(0, 2 * count)
    assert len(received_rows(parts)) == count
    assert [pair for part in parts for pair in part.losses] == lost


def test_missing_records_and_streams_are_refused_by_name(clock: Clock, make_journal: MakeJournal) -> None:
    factory, _ = server(clock, make_journal(records(5, 9)))
    caller = admitted(factory)
    (refusal,) = caller.read(4, 9)
    assert (refusal.id, refusal.name) == (1, wire.NOT_IN_JOURNAL)
    (refusal,) = caller.ask(wire.Read(2, "test://none", EPOCH, 4, 9, 1, False))
    assert (refusal.id, refusal.name) == (2, wire.UNKNOWN_STREAM)
    (refusal,) = caller.ask(wire.ListRanges(2, STREAM, EPOCH, 4, 9, True))
    assert (refusal.id, refusal.name) == (2, wire.NOT_IN_JOURNAL)
    assert received_rows(caller.read(5, 9)) == expected_rows(records(5, 9))
    (nothing,) = caller.ask(wire.Read(3, STREAM, EPOCH + 1, 4, 9, 1, False))
    assert nothing == wire.Records(3, 4, 4, True)
    assert factory.counters.refused == {wire.NOT_IN_JOURNAL: 2, wire.UNKNOWN_STREAM: 1}


def test_records_removed_by_retention_while_served_are_reported(clock: Clock, make_journal: MakeJournal) -> None:
    groups = [records(100 * group, 100 * group + 99, 20) for group in range(40)]
    journal = make_journal(*groups, retention=Retention(size=20_000))
    caller = admitted(server(clock, journal, chunk=1_000)[0])
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 4_000, 2**30, False))
    caller.transport.producer.resumeProducing()
    begun = caller.heard()
    assert begun
    assert not begun[-1].end
    assert journal.trim() > 0
    bounds = journal.bounds(EPOCH)
    rest = caller.listen()
    assert rest[-1].name == wire.NOT_IN_JOURNAL
    assert str(bounds.first) in rest[-1].text


def test_damage_is_refused_or_reported_on_request(clock: Clock, tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), STREAM)
    for group in records(1, 9), records(10, 19), records(20, 29):
        journal.append(group)
        journal.commit()
    (path,) = tmp_path.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"15" * 10, b"51" * 10))
    caller = admitted(server(clock, journal)[0])
    (refusal,) = caller.read(1, 29)
    assert refusal.name == wire.DAMAGED
    assert (refusal.damage.first, refusal.damage.last) == (10, 19)
    assert received_rows(parts := caller.read(1, 29, skip=True)) == expected_rows(records(1, 9) + records(20, 29))
    assert [damage.first for part in parts for damage in part.damages] == [10]
    journal.close()


def test_a_failed_request_does_not_affect_others(clock: Clock) -> None:
    class Failing(MemoryJournal):
        def bounds(self, epoch: int) -> Any:
            raise OSError("the disk is on fire")

    journal = Failing(STREAM)
    caller = admitted(server(clock, journal)[0])
    (refusal,) = caller.read(1, 2)
    assert refusal.name == wire.FAILED
    assert "fire" not in refusal.text
    assert caller.ask(wire.ListStreams(3)) == [wire.Streams(3, (wire.StreamInfo(STREAM, 0, ()),), True, (journal.tag,))]


def refused_as(caller: Caller, name: str) -> bool:
    *_, refusal = caller.heard()
    return caller.gone and (refusal.id, refusal.name) == (None, name)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 4,
        b"\0" * 4,
        wire.encode(wire.ListStreams(1)),
        wire.encode(wire.Hello(wire.VERSION + 1, b"")),
        wire.encode(wire.Hello(wire.VERSION, b"")) * 2,
        wire.encode(wire.Hello(wire.VERSION, b"")) + wire.encode(wire.Welcome(1)),
        wire.encode(wire.Hello(wire.VERSION, b"")) + b"\x05\0\0\0hello",
    ],
)
def test_a_client_with_invalid_messages_is_told_and_disconnected(clock: Clock, data: bytes) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM))
    caller = Caller(factory)
    caller.say(data)
    assert refused_as(caller, wire.BAD_REQUEST)
    caller.say(wire.Hello(wire.VERSION, b""), wire.ListStreams(1))
    assert caller.heard() == []
    assert factory.counters.refused == {wire.BAD_REQUEST: 1}
    assert factory.counters.requests == 0


def test_each_connection_has_its_own_challenge(clock: Clock) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), secret=SECRET)
    first, second = Caller(factory), Caller(factory)
    ((greeting,), (other,)) = first.heard(), second.heard()
    assert greeting.secret
    assert greeting.nonce != other.nonce
    hello = wire.Hello(wire.VERSION, wire.proof(SECRET, greeting.nonce))
    first.say(hello)
    assert first.heard() == [wire.Welcome(wire.VERSION)]
    second.say(hello)
    assert refused_as(second, wire.WRONG_SECRET)


@pytest.mark.parametrize("mac", [b"", bytes(32), wire.proof(b"another secret, same length", bytes(16))])
def test_a_client_without_the_secret_is_refused(clock: Clock, mac: bytes) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), secret=SECRET)
    caller = Caller(factory)
    caller.heard()
    caller.say(wire.Hello(wire.VERSION, mac), wire.ListStreams(1))
    assert refused_as(caller, wire.WRONG_SECRET)
    assert factory.counters.requests == 0


def test_journal_connections_are_limited_in_total_and_per_host(clock: Clock) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), connections=3, per_host=2)
    one, _two = admitted(factory), admitted(factory)
    third = Caller(factory)
    assert refused_as(third, wire.TOO_MANY)
    third.leave()
    admitted(factory, host="10.0.0.2")
    fourth = Caller(factory, host="10.0.0.3")
    assert refused_as(fourth, wire.TOO_MANY)
    fourth.leave()
    one.leave()
    admitted(factory)
    assert len(factory.connections) == 3


def test_journal_connections_of_an_ipv6_64_count_as_those_of_one_host(clock: Clock) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), connections=9, per_host=2)
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        admitted(factory, host=host)
    assert refused_as(Caller(factory, host="2001:db8::3"), wire.TOO_MANY)


def test_refused_connections_that_stay_open_are_limited(clock: Clock) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), connections=1, per_host=1, handshake=10.0)
    admitted(factory)
    assert refused_as(staying := Caller(factory), wire.TOO_MANY)
    silent = Caller(factory)
    assert silent.transport.aborted
    assert silent.heard() == []
    clock.advance(10.0)
    assert staying.transport.aborted


def test_a_client_without_a_hello_times_out(clock: Clock) -> None:
    caller = Caller(server(clock, MemoryJournal(STREAM), handshake=10.0)[0])
    hello = wire.encode(wire.Hello(wire.VERSION, b""))
    for byte in hello[:9]:
        caller.say(bytes([byte]))
        assert not caller.gone
        clock.advance(1.0)
    clock.advance(1.0)
    assert refused_as(caller, wire.TIMED_OUT)
    assert not caller.transport.aborted
    clock.advance(10.0)
    assert caller.transport.aborted


def test_an_idle_client_times_out(clock: Clock) -> None:
    caller = admitted(server(clock, MemoryJournal(STREAM), idle=300.0)[0])
    for _ in range(3):
        clock.advance(299.0)
        caller.say(b"\x10")  # An incomplete request does not count.
        caller.decoder = wire.answer_decoder()
        assert not caller.gone
        caller.protocol._decoder = wire.request_decoder()
        caller.ask(wire.ListStreams(1))
    clock.advance(300.0)
    assert refused_as(caller, wire.TIMED_OUT)


def test_a_client_that_stops_reading_is_aborted(clock: Clock, make_journal: MakeJournal) -> None:
    factory, _ = server(clock, make_journal(records(0, 5_000)), chunk=1_000, idle=300.0)
    caller = admitted(factory)
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 5_000, 2**30, False))
    for _ in range(3):
        caller.transport.producer.resumeProducing()
        clock.advance(299.0)
        assert not caller.gone
    clock.advance(1.0)
    assert caller.transport.aborted
    assert factory.counters.stalled == 1


def test_at_most_one_chunk_is_buffered_for_a_slow_client(clock: Clock) -> None:
    asked: list[tuple[int, int]] = []

    class Watched(MemoryJournal):
        def _read(self, epoch: int, first: int, last: int) -> Iterator[Block]:
            for block in super()._read(epoch, first, last):
                asked.append((block.first, block.last))
                yield block

    journal = Watched(STREAM)
    journal.append(records(0, 50_000, 50))
    journal.commit()
    caller = admitted(server(clock, journal, chunk=100_000)[0])
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 50_000, 2**30, False), *(wire.ListStreams(2) for _ in range(3)))
    assert caller.transport.value() == b""
    for turn in range(1, 4):
        caller.transport.producer.resumeProducing()
        assert 50_000 < len(caller.transport.value()) < 200_000
        assert len(asked) <= turn
        caller.heard()


def test_pending_requests_are_answered_in_order_and_limited(clock: Clock, make_journal: MakeJournal) -> None:
    factory, _ = server(clock, make_journal(records(0, 100)), waiting=16)
    caller = admitted(factory)
    answers = caller.ask(*(wire.Read(number, STREAM, EPOCH, number, number, 1, False) for number in range(16)))
    assert [answer.id for answer in answers if answer.end] == list(range(16))
    caller.say(*(wire.ListStreams(number) for number in range(17)))
    assert refused_as(caller, wire.TOO_MANY)
    assert caller.transport.producer is None


def test_the_byte_rate_of_a_client_is_limited(clock: Clock, make_journal: MakeJournal) -> None:
    factory, _ = server(clock, make_journal(records(0, 20_000)), chunk=10_000, rate=100_000.0, idle=5.0)
    caller = admitted(factory)
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 20_000, 2**30, False))
    size, seconds, parts = 0, 0.0, []
    while caller.transport.producer is not None:
        caller.transport.producer.resumeProducing()
        size += len(caller.transport.value())
        assert size <= 100_000 * (seconds + 1)
        parts += caller.heard()
        clock.advance(0.1)
        seconds += 0.1
    parts += caller.heard()
    assert received_rows(parts) == expected_rows(records(0, 20_000))
    assert size >= 100_000 * (seconds - 1.5)


def test_a_rate_limited_answer_continues_without_further_requests(clock: Clock, make_journal: MakeJournal) -> None:
    caller = admitted(server(clock, make_journal(records(0, 20_000)), chunk=10_000, rate=100_000.0)[0])
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 20_000, 2**30, False))
    caller.transport.producer.resumeProducing()
    caller.heard()
    caller.transport.producer.resumeProducing()
    assert caller.heard() == []
    clock.advance(1.0)
    assert caller.heard() != []


def test_a_closed_journal_server_leaves_no_timers_or_connections(clock: Clock, make_journal: MakeJournal) -> None:
    factory, _ = server(clock, make_journal(records(0, 20_000)), chunk=10_000, rate=1.0)
    caller = admitted(factory)
    caller.say(wire.Read(1, STREAM, EPOCH, 0, 20_000, 2**30, False))
    caller.transport.producer.resumeProducing()
    caller.transport.producer.resumeProducing()
    assert len(clock.getDelayedCalls()) == 2
    caller.leave()
    assert clock.getDelayedCalls() == []
    assert not factory.connections


@pytest.mark.parametrize("description", ["9100", "tcp:9100", "tcp:9100:interface=127.1.2.3", "unix:/tmp/x"])
def test_a_server_without_a_secret_listens_on_loopback_and_unix_sockets(clock: Clock, description: str) -> None:
    assert journal_endpoint(clock, description, None) is not None


@pytest.mark.parametrize(
    "description",
    [
        "tcp:9100:interface=0.0.0.0",
        "tcp:9100:interface=",
        "tcp:9100:interface=10.0.0.1",
        "tcp:9100:interface=localhost.example",
        "tcp6:9100",
        "tcp6:9100:interface=\\:\\:",
        "tcp:9100:0.0.0.0",
        "nonsense:1",
    ],
)
def test_a_server_without_a_secret_refuses_other_interfaces(clock: Clock, description: str) -> None:
    with pytest.raises(ConfigurationError):
        journal_endpoint(clock, description, None)


def test_a_server_with_a_secret_listens_on_any_interface(clock: Clock) -> None:
    assert journal_endpoint(clock, "tcp:9100:interface=0.0.0.0", SECRET) is not None
    assert journal_endpoint(clock, "tcp6:9100:interface=\\:\\:1", None) is not None
    with pytest.raises(ConfigurationError, match="secret"):
        journal_endpoint(clock, "9100", b"short")
    with pytest.raises(ConfigurationError, match="secret"):
        JournalServerFactory(dict, b"short", reactor=clock)


@pytest.mark.parametrize("limits", [{"connections": 0}, {"chunk": 0}, {"idle": 0.0}, {"rate": 0.0}])
def test_invalid_server_limits_are_refused(limits: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ServingLimits(**limits)


def test_clients_of_a_unix_socket_count_as_one_host(clock: Clock) -> None:
    factory, _ = server(clock, MemoryJournal(STREAM), per_host=1)
    factory.buildProtocol(UNIXAddress(b"/tmp/x"))
    assert factory.buildProtocol(None).rejection


@pytest.fixture
def listen() -> Iterator[Callable[[JournalServerFactory], int]]:
    """Return a function that makes a factory listen on a free loopback port."""
    from twisted.internet import reactor

    ports: list[Any] = []

    def listening(factory: JournalServerFactory) -> int:
        ports.append(reactor.listenTCP(0, factory, interface="127.0.0.1"))  # type: ignore[attr-defined]
        return int(ports[-1].getHost().port)

    yield listening
    for port in ports:
        pytest_twisted.blockon(port.stopListening())


async def until(condition: Callable[[], bool]) -> None:
    """Run the reactor until a condition holds."""
    from twisted.internet import reactor

    timer: Any = reactor
    end = timer.seconds() + DEADLINE
    while not condition():
        assert timer.seconds() < end, "it never happens"
        await deferLater(timer, 0)


def drain(client: socket.socket) -> int:
    """Read to the end; return the number of bytes."""
    size = 0
    while data := client.recv(65_536):
        size += len(data)
    return size


@pytest_twisted.ensureDeferred
async def test_garbage_from_many_sockets_does_not_stop_the_server(
    listen: Callable[[JournalServerFactory], int],
) -> None:
    from twisted.internet import reactor

    factory, _ = server(reactor, MemoryJournal(STREAM))
    port = listen(factory)

    def throw() -> None:
        for seed in range(20):
            with socket.create_connection(("127.0.0.1", port), DEADLINE) as client:
                client.sendall(b"\xff" + Random(seed).randbytes(2_000))
                with suppress(ConnectionResetError):
                    drain(client)

    await deferToThread(throw).addTimeout(DEADLINE, reactor)  # type: ignore[arg-type]
    await until(lambda: not factory.connections)
    assert sum(factory.counters.refused.values()) == 20


@pytest_twisted.ensureDeferred
async def test_an_unread_socket_buffers_a_bounded_amount(listen: Callable[[JournalServerFactory], int]) -> None:
    from twisted.internet import reactor

    journal = MemoryJournal(STREAM)
    payload = bytes(10_000)
    journal.append([Record(STREAM, EPOCH, number, 0, payload) for number in range(3_000)])
    journal.commit()
    factory, _ = server(reactor, journal, chunk=100_000)
    port = listen(factory)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.connect(("127.0.0.1", port))
        await until(lambda: bool(factory.connections))
        (protocol,) = factory.connections
        transport: Any = protocol.transport
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        request = wire.Read(1, STREAM, EPOCH, 0, 3_000, 2**30, False)
        client.sendall(wire.encode(wire.Hello(wire.VERSION, b"")) + wire.encode(request))
        most = 0

        def is_stuck() -> bool:
            """Tell whether the server waits for a full socket buffer."""
            nonlocal most
            waiting = len(transport.dataBuffer) - transport.offset + transport._tempDataLen
            most = max(most, waiting)
            return waiting > 0 and not select.select([], [transport], [], 0)[1]

        await until(is_stuck)
        for _ in range(20):
            is_stuck()
            await deferLater(transport.reactor, 0)
        assert most < 300_000
        assert factory.counters.bytes < 1_000_000
    await until(lambda: not factory.connections)
