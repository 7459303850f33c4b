"""Rules of a client with a journal whose backbones take over from one another."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig, RepairConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost, NumbersSkipped, TermStarted
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, PendingWrites
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Forward,
    Head,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start
from fyrehose_twisted.journal.memory import MemoryJournal

STREAM = "fyrehose://test"
A: Address = ("10.0.0.1", 2323)
B: Address = ("10.0.0.2", 2323)
OTHER: Address = ("10.0.0.8", 4000)

PacketT = TypeVar("PacketT")


def data_of(sequence: int) -> bytes:
    return b"message %d" % sequence


def marker(term: int, held_up_to: int, first: int) -> Deliver:
    return Deliver(first, encode_term_start(TermStart(term, held_up_to, first)))


class Keeper:
    """A client with a journal of two backbones; ``told`` holds its outputs in order."""

    def __init__(self, journal: MemoryJournal, *, term: int = 5, leader: Address = A, last: int = 0) -> None:
        self.now = 1_700_000_000.0
        self.journal = journal
        self.term, self.leader, self.last = term, leader, last
        config = ClientConfig(start=1, repair=RepairConfig(attempts=2))
        self.client = JournalClient((A, B), config, journal, Random(1), self.now)
        self.told: list[Any] = []
        self.peers: list[tuple[Packet, Address]] = []
        self.tick()

    def drain(self) -> None:
        going_on = True
        while going_on:
            unsaved, effects, events = self.client.drain()
            if unsaved is not None:
                self.told.append(unsaved)
                unsaved.save(self.journal)
            for effect in effects:
                packets = [decode(datagram) for datagram in effect.iter_datagrams()]
                self.told += packets
                self.peers += [(packet, peer) for packet in packets for peer in effect.peers]
            self.told += events
            going_on = bool(events)

    def tick(self) -> None:
        before = len(self.told)
        self.client.tick(self.now)
        self.drain()
        for packet in self.told[before:]:
            if isinstance(packet, Keepalive):
                report = Leader(packet.token, self.term, self.leader)
                self.receive(Status(packet.token, 0, self.last), report, KeepaliveAck(packet.token))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.client.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.tick()
        self.now = end

    def receive(self, *packets: Packet, peer: Address | None = None) -> None:
        sender = self.leader if peer is None else peer
        self.client.receive_batch(Batch.pack([(encode(packet), sender) for packet in packets]), self.now)
        self.drain()

    def deliver(self, *sequences: int, peer: Address | None = None) -> None:
        self.receive(*(Deliver(number, data_of(number)) for number in sequences), peer=peer)

    def take_over(self, leader: Address) -> None:
        self.term, self.leader = self.term + 1, leader
        self.receive(Leader(self.client.keepalive.token, self.term, leader, True, (A, B)))

    def all(self, kind: type[PacketT]) -> list[PacketT]:
        return [item for item in self.told if isinstance(item, kind)]

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for delivered in self.all(MessagesDelivered) for message in delivered.messages]


def stored(journal: MemoryJournal) -> list[int]:
    bounds = journal.bounds(EPOCH)
    assert bounds is not None
    blocks = journal.read(EPOCH, bounds.first, bounds.last, lambda damage: None)
    return [number for block in blocks for number in block.sequences.tolist()]


def test_a_journal_stores_messages_before_it_answers_a_new_leader() -> None:
    keeper = Keeper(MemoryJournal(STREAM))
    packets = [Deliver(number, data_of(number)) for number in (1, 2)]
    report = Leader(keeper.client.keepalive.token, 6, B, True)
    arrivals = [(encode(packet), A) for packet in packets] + [(encode(report), B)]
    keeper.client.receive_batch(Batch.pack(arrivals), keeper.now)
    keeper.drain()
    (head,) = keeper.all(Head)
    saved = next(item for item in keeper.told if isinstance(item, PendingWrites) and item.records)
    assert (head.term, head.highest) == (6, 2)
    assert [record.sequence for record in saved.records] == [1, 2]
    assert keeper.told.index(saved) < keeper.told.index(head)


def test_a_journal_reports_its_progress_to_a_new_leader_at_once() -> None:
    keeper = Keeper(MemoryJournal(STREAM))
    keeper.deliver(1, 2)
    keeper.run(0.5)
    before = len(keeper.all(Holds))
    keeper.take_over(B)
    holds = keeper.all(Holds)[before:]
    assert [report.holding for report in holds] == [Holding(1, 2)]
    assert (holds[0], B) in keeper.peers


def test_a_journal_stores_the_start_of_a_term_and_no_gap_before_it() -> None:
    journal = MemoryJournal(STREAM)
    keeper = Keeper(journal)
    keeper.deliver(1, 2, 3)
    keeper.take_over(B)
    keeper.receive(marker(6, 3, 900))
    keeper.deliver(901)
    keeper.run(1.0)
    assert stored(journal) == [1, 2, 3, 900, 901]
    assert journal.losses(EPOCH, 1, 901) == [(4, 899)]
    assert keeper.sequences == [1, 2, 3, 901]
    assert keeper.all(NumbersSkipped) == [NumbersSkipped(4, 899)]
    assert keeper.all(TermStarted) == [TermStarted(6, 3, 900)]
    assert keeper.all(Holds)[-1].holding == Holding(1, 901)
    assert keeper.all(Holds)[-1].reached in (0, 901)


def test_a_restarted_journal_does_not_count_skipped_numbers_as_losses() -> None:
    journal = MemoryJournal(STREAM)
    keeper = Keeper(journal)
    keeper.deliver(1, 2, 3)
    keeper.take_over(B)
    keeper.receive(marker(6, 3, 900))
    keeper.deliver(901)
    again = Keeper(journal, term=6, leader=B, last=901)
    again.run(1.0)
    assert again.all(Holds)[-1].holding == Holding(1, 901)


def test_a_restarted_journal_answers_a_new_leader_with_its_highest_number() -> None:
    journal = MemoryJournal(STREAM)
    Keeper(journal).deliver(1, 2, 5)
    again = Keeper(journal)
    again.take_over(B)
    assert [head.highest for head in again.all(Head)] == [5]


def test_a_restarted_journal_counts_losses_before_a_seam() -> None:
    journal = MemoryJournal(STREAM)
    keeper = Keeper(journal)
    keeper.deliver(1)
    keeper.take_over(B)
    keeper.receive(marker(6, 3, 900))
    keeper.deliver(901, 902, 903)
    keeper.run(5.0)
    assert keeper.all(MessagesLost) == [MessagesLost(2, 3)]
    for one in (keeper, Keeper(journal, term=6, leader=B, last=903)):
        one.run(1.0)
        assert one.all(Holds)[-1].holding.since in (4, 900)
        assert one.all(Holds)[-1].holding.durable == 903


def test_a_journal_that_restarts_before_a_gap_is_settled_finds_the_seam_in_its_store() -> None:
    journal = MemoryJournal(STREAM)
    keeper = Keeper(journal)
    keeper.deliver(1, 3)
    keeper.take_over(B)
    keeper.receive(marker(6, 3, 900))
    keeper.deliver(901)
    assert keeper.sequences == [1]
    again = Keeper(journal, term=6, leader=B, last=901)
    again.run(0.5)
    again.deliver(2, peer=OTHER)
    again.run(0.1)
    assert again.sequences == [2, 3, 901]
    assert again.all(NumbersSkipped) == [NumbersSkipped(4, 899)]
    before = len(again.told)
    again.run(2.0)
    asked = [item for item in again.told[before:] if isinstance(item, Request)]
    assert all(request.first > 901 for request in asked)


def test_a_journal_repairs_the_start_of_a_term_for_others() -> None:
    keeper = Keeper(MemoryJournal(STREAM))
    keeper.deliver(1)
    keeper.take_over(B)
    keeper.receive(marker(6, 1, 900))
    keeper.receive(Forward(OTHER, 2, 900))
    assert (marker(6, 1, 900), OTHER) in keeper.peers
