"""Journal protocol with a fake port and clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.logger import LogLevel, capturedLogs
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Datagram
from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward, Keepalive, KeepaliveAck, Packet
from fyrehose_twisted.interfaces import IDatagramSender
from fyrehose_twisted.journal.errors import JournalFull
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.store import Journal

STREAM = "fyrehose://test"
BACKBONE: Address = ("192.0.2.1", 2323)
OTHER: Address = ("192.0.2.8", 7)
FIRST = ClientConfig(start=1)


@implementer(IDatagramSender)
class Port:
    """A port that records datagrams and acknowledges KEEPALIVEs like a backbone."""

    def __init__(self, protocol: Any, log: list[Any]) -> None:
        self.sent: list[Packet] = []
        self.stopped = False
        self._protocol = protocol
        self._log = log

    def getHost(self) -> Any:
        return SimpleNamespace(host="192.0.2.2", port=7)

    def send(self, datagrams: Sequence[Datagram], peers: Sequence[Address]) -> None:
        packets = [decode(datagram) for datagram in datagrams]
        self.sent += packets
        self._log += [("sent", packet.sequence) for packet in packets if isinstance(packet, Deliver)]

    def stopListening(self) -> Deferred[None]:
        self.stopped = True
        return deferLater(self._protocol.reactor, 0, self._protocol.doStop)


class Spied:
    """A journal that records durable numbers in ``log``."""

    def __init__(self, journal: Any, log: list[Any]) -> None:
        self.full = False
        self._journal = journal
        self._log = log
        self._waiting: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, records: Sequence[Any], *, authoritative: bool = False) -> Any:
        self._waiting += [record.sequence for record in records]
        return self._journal.append(records, authoritative=authoritative)

    def commit(self, sync: bool = True) -> None:
        if self.full:
            raise JournalFull("no room for more; make some")
        self._journal.commit(sync)
        if sync:
            self._log += [("durable", number) for number in self._waiting]
            self._waiting.clear()


class Application(JournalProtocol):
    """An application that records delivered numbers in ``log``."""

    def __init__(self, log: list[Any], config: ClientConfig | None = FIRST, **options: Any) -> None:
        super().__init__(config, **options)
        self.backbone = BACKBONE
        self._into = log

    def messages_received(self, messages: Sequence[Message]) -> None:
        self._into += [("handed over", message.sequence) for message in messages]

    def messages_lost(self, first: int, last: int) -> None:
        self._into.append(("lost", (first, last)))


def run(protocol: JournalProtocol, log: list[Any]) -> Port:
    """Start a protocol and let the backbone answer."""
    port = Port(protocol, log)
    protocol.makeConnection(port)
    receive(protocol, *(KeepaliveAck(packet.token) for packet in port.sent if isinstance(packet, Keepalive)))
    return port


def receive(protocol: JournalProtocol, *packets: Packet, peer: Address = BACKBONE) -> None:
    protocol.batch_received(Batch.pack([(encode(packet), peer) for packet in packets]))


def deliver(protocol: JournalProtocol, *sequences: int) -> None:
    receive(protocol, *(Deliver(number, b"message %d" % number) for number in sequences))


def what_stopped(protocol: JournalProtocol) -> list[type[Exception] | None]:
    """Return a list that receives the error that stops the protocol."""
    errors: list[type[Exception] | None] = []
    protocol.stopped.addErrback(lambda failure: errors.append(failure.type))
    return errors


def clock() -> Clock:
    made = Clock()
    made.advance(1_000)
    return made


def test_messages_are_delivered_after_they_are_durable() -> None:
    log: list[Any] = []
    journal = Spied(MemoryJournal(STREAM), log)
    protocol = Application(log, journal=journal, reactor=clock())
    run(protocol, log)
    deliver(protocol, 1, 2)
    assert log == [("durable", 1), ("durable", 2), ("handed over", 1), ("handed over", 2)]
    deliver(protocol, 4)
    assert log[4:] == [("durable", 4)]
    deliver(protocol, 3)
    assert log[5:] == [("durable", 3), ("handed over", 3), ("handed over", 4)]
    receive(protocol, Deliver(5, b""), Forward(OTHER, 5, 5))
    # Repairs for other clients are durable too.
    assert log[8:] == [("durable", 5), ("sent", 5), ("handed over", 5)]


def test_without_sync_messages_are_delivered_before_the_commit() -> None:
    log: list[Any] = []
    journal = Spied(MemoryJournal(STREAM), log)
    protocol = Application(log, journal=journal, sync=False, reactor=clock())
    run(protocol, log)
    deliver(protocol, 1)
    assert log == [("handed over", 1)]
    assert journal.bounds(0).next == 1
    journal.commit()
    assert log == [("handed over", 1), ("durable", 1)]
    assert journal.bounds(0).next == 2


def test_a_restarted_journal_protocol_delivers_no_message_again(tmp_path: Path) -> None:
    log: list[Any] = []
    for numbers in ((1, 2, 3), (2, 3, 4)):
        journal = Journal(LocalDirectory(tmp_path), STREAM)
        protocol = Application(log, journal=journal, reactor=clock())
        run(protocol, log)
        deliver(protocol, *numbers)
        protocol.leave()
        journal.close()
    assert log == [("handed over", number) for number in (1, 2, 3, 4)]


def test_a_full_journal_stops_the_protocol_without_further_deliveries() -> None:
    log: list[Any] = []
    journal = Spied(MemoryJournal(STREAM), log)
    protocol = Application(log, journal=journal, reactor=clock())
    port = run(protocol, log)
    deliver(protocol, 1)
    told = list(log)
    journal.full = True
    port.sent.clear()
    errors = what_stopped(protocol)
    with capturedLogs() as logged:
        receive(protocol, Deliver(2, b"two"), Forward(OTHER, 1, 2))
        deliver(protocol, 3)
        protocol.reactor.advance(0)
    assert errors == [JournalFull]
    assert port.stopped
    assert log == told
    assert port.sent == []
    said = [event["error"] for event in logged if event["log_level"] is LogLevel.critical]
    assert [str(error) for error in said] == ["no room for more; make some"]


def test_a_journal_full_at_the_start_stops_the_protocol() -> None:
    journal = Spied(MemoryJournal(STREAM), [])
    journal.full = True
    protocol = Application([], journal=journal, reactor=clock())
    port = Port(protocol, [])
    errors = what_stopped(protocol)
    with capturedLogs():
        protocol.makeConnection(port)
        protocol.reactor.advance(0)
    assert errors == [JournalFull]
    assert port.stopped
    assert port.sent == []


@pytest.mark.parametrize(
    ("config", "start"), [(None, Start.OLDEST), (FIRST, 1), (ClientConfig(start=Start.LIVE), Start.LIVE)]
)
def test_a_journal_protocol_starts_at_the_oldest_message_by_default(
    config: ClientConfig | None, start: Start | int
) -> None:
    protocol = Application([], config, journal=MemoryJournal(STREAM), reactor=clock())
    run(protocol, [])
    node = protocol.node
    assert isinstance(node, JournalClient)
    assert node.config.start == start
    protocol.leave()


def test_a_journal_protocol_does_not_close_its_journal() -> None:
    journal = MemoryJournal(STREAM)
    protocol = Application([], journal=journal, reactor=clock())
    run(protocol, [])
    protocol.leave()
    journal.commit()
    assert journal.bounds(0) is not None
