"""Rules of a client with a journal, without sockets: durability before delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from suite.journals import JournalType

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.config import ClientConfig, RepairConfig, Start
from fyrehose_twisted.fyrehose.events import ClientFailed, MessagesDelivered, MessagesLost
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, PendingWrites
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Forward,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
BACKBONE: Address = ("10.0.0.1", 2323)
OTHER: Address = ("10.0.0.8", 4000)
OLDEST = ClientConfig(start=Start.OLDEST)

PacketT = TypeVar("PacketT")


def data_of(sequence: int) -> bytes:
    return b"message %d" % sequence


class Bench:
    """A client with a journal and a clock; ``told`` holds its outputs in order."""

    def __init__(self, journal: JournalType, config: ClientConfig = OLDEST, *, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.journal = journal
        self.client = JournalClient(BACKBONE, config, journal, Random(1), now)
        self.told: list[Any] = []
        self.tick()

    def drain(self) -> None:
        going_on = True
        while going_on:
            unsaved, effects, events = self.client.drain()
            if unsaved is not None:
                self.told.append(unsaved)
                unsaved.save(self.journal)
            for effect in effects:
                self.told += [decode(datagram) for datagram in effect.iter_datagrams()]
                self.sent_to = effect.peers
            self.told += events
            going_on = bool(events)

    def tick(self) -> None:
        before = len(self.told)
        self.client.tick(self.now)
        self.drain()
        for packet in self.told[before:]:
            if isinstance(packet, Keepalive):
                self.receive(KeepaliveAck(packet.token))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.client.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.tick()
        self.now = end

    def receive(self, *packets: Packet, peer: Address = BACKBONE) -> None:
        self.client.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        self.drain()

    def deliver(self, *sequences: int, peer: Address = BACKBONE) -> None:
        self.receive(*(Deliver(number, data_of(number)) for number in sequences), peer=peer)

    def all(self, kind: type[PacketT]) -> list[PacketT]:
        return [item for item in self.told if isinstance(item, kind)]

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for delivered in self.all(MessagesDelivered) for message in delivered.messages]

    @property
    def asked(self) -> set[int]:
        return {number for request in self.all(Request) for number in range(request.first, request.last + 1)}


Open = Callable[[], JournalType]


@pytest.fixture(params=["disk", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the journal, on disk or in memory, again at each restart."""
    opened: list[JournalType] = []

    def open_it() -> JournalType:
        if request.param == "memory":
            opened[:] = opened or [MemoryJournal(STREAM)]
        else:
            for one in opened:
                one.close()
            opened[:] = [Journal(LocalDirectory(tmp_path), STREAM)]
        return opened[0]

    yield open_it
    for one in opened:
        one.close()


def kept(journal: JournalType) -> dict[int, bytes]:
    bounds = journal.bounds(EPOCH)
    if bounds is None:
        return {}
    return {
        record.sequence: record.payload
        for block in journal.read(EPOCH, bounds.first, bounds.last)
        for record in block.records()
    }


def test_messages_are_durable_before_they_are_delivered_or_sent(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.deliver(1, 2, 4)
    bench.receive(Forward(OTHER, 1, 4))
    bench.deliver(3)
    durable: set[int] = set()
    for item in bench.told:
        match item:
            case PendingWrites():
                durable.update(record.sequence for record in item.records)
            case Deliver(sequence, _):
                assert sequence in durable
            case MessagesDelivered(messages):
                assert durable.issuperset(message.sequence for message in messages)
    assert bench.sequences == [1, 2, 3, 4]
    assert [packet.sequence for packet in bench.all(Deliver)] == [1, 2, 4]
    assert bench.journal.bounds(EPOCH) == Bounds(1, 5, 4)


def test_a_batch_is_persisted_in_one_group_with_its_receive_time(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.deliver(*range(1, 101))
    groups = [unsaved.records for unsaved in bench.all(PendingWrites) if unsaved.records]
    received_at = int(bench.now * 1_000_000)
    assert groups == [[Record(STREAM, EPOCH, number, received_at, data_of(number)) for number in range(1, 101)]]


def test_a_loss_is_durable_before_it_is_reported(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1, repair=RepairConfig(attempts=1)))
    bench.deliver(1, 4, 5)
    for _ in range(60):
        if bench.all(MessagesLost):
            break
        bench.run(1)
        bounds = bench.journal.bounds(EPOCH)
        assert bounds is not None
        bench.deliver(bounds.last + 1)
    lost = bench.all(MessagesLost)
    assert lost == [MessagesLost(2, 3)]
    declared = next(
        index for index, item in enumerate(bench.told) if isinstance(item, PendingWrites) and item.lost_ranges
    )
    assert bench.told[declared].lost_ranges == [(2, 3)]
    assert declared < bench.told.index(lost[0])
    assert bench.journal.losses(EPOCH, 1, 9) == [(2, 3)]
    bounds = bench.journal.bounds(EPOCH)
    assert bounds is not None
    assert bounds.next == bench.sequences[-1] + 1


def test_a_restarted_journal_client_continues_at_the_watermark(journal: Open) -> None:
    first = Bench(journal())
    first.deliver(7, 8)
    first.run(10)
    first.deliver(9)
    assert first.sequences == [7, 8, 9]
    assert first.journal.bounds(EPOCH) == Bounds(7, 10, 9)
    second = Bench(journal(), ClientConfig(start=3), now=first.now)
    assert second.client.next_sequence == 10
    second.deliver(7, 9, 10)
    second.run(1)
    assert second.sequences == [10]
    assert 9 not in second.asked
    assert second.journal.bounds(EPOCH) == Bounds(7, 11, 10)


def test_a_new_journal_begins_at_the_configured_number(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=5))
    assert bench.journal.bounds(EPOCH) == Bounds(5, 5, 4)
    bench.deliver(4, 6)
    assert bench.journal.bounds(EPOCH) == Bounds(5, 5, 6)
    again = Bench(journal(), ClientConfig(start=1), now=bench.now)
    assert again.client.next_sequence == 5
    assert again.journal.bounds(EPOCH) == Bounds(5, 5, 6)


def test_a_new_journal_begins_with_the_oldest_message_of_any_client(journal: Open) -> None:
    bench = Bench(journal())
    assert bench.journal.bounds(EPOCH) is None
    bench.deliver(9)
    bench.run(0.5)
    assert 6 in bench.asked
    bench.deliver(6, 7, 8, peer=OTHER)
    bench.run(10)
    assert bench.sequences == [6, 7, 8, 9]
    assert bench.journal.bounds(EPOCH) == Bounds(6, 10, 9)
    begins = [unsaved.first_sequence for unsaved in bench.all(PendingWrites)]
    assert [number for number in begins if number is not None] == [6]


def with_gap(journal: JournalType) -> None:
    """Save 1 to 3 and 5 to 8, leaving a gap at 4."""
    records = [Record(STREAM, EPOCH, number, number, data_of(number)) for number in (1, 2, 3, 5, 6, 7, 8)]
    PendingWrites(1, records, []).save(journal)


def test_records_above_the_watermark_are_delivered_without_requests(journal: Open) -> None:
    with_gap(journal())
    bench = Bench(journal(), ClientConfig(start=1))
    assert bench.client.next_sequence == 4
    bench.deliver(4)
    assert bench.sequences == [4]
    asked = len(bench.all(Request))
    bench.deliver(9)
    bench.run(1)
    assert bench.sequences == [4, 5, 6, 7, 8, 9]
    times = {
        message.sequence: message.received_at for event in bench.all(MessagesDelivered) for message in event.messages
    }
    assert times[7] == 7, "it came before the restart"
    assert not any(request.first <= 8 for request in bench.all(Request)[asked:])
    assert kept(bench.journal) == {number: data_of(number) for number in range(1, 10)}


def test_only_numbers_missing_in_the_journal_are_requested(journal: Open) -> None:
    with_gap(journal())
    bench = Bench(journal(), ClientConfig(start=1))
    bench.deliver(9)
    bench.run(1)
    assert bench.sequences == []
    assert 4 in bench.asked
    bench.deliver(4, peer=OTHER)
    assert bench.sequences == [4, 5, 6, 7, 8, 9]


def test_the_backbone_corrects_records_above_the_watermark(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.deliver(4)
    bench.run(0.5)
    assert {2, 3} <= bench.asked
    bench.receive(Deliver(3, b"forged"), peer=OTHER)
    assert kept(bench.journal) == {3: b"forged", 4: data_of(4)}
    bench.deliver(3)
    assert kept(bench.journal) == {3: data_of(3), 4: data_of(4)}
    bench.receive(Deliver(3, b"forged"), peer=OTHER)
    bench.deliver(1, 2)
    assert [message.data for event in bench.all(MessagesDelivered) for message in event.messages] == [
        data_of(number) for number in (1, 2, 3, 4)
    ]
    assert kept(bench.journal) == {number: data_of(number) for number in (1, 2, 3, 4)}
    assert kept(journal())[3] == data_of(3)


def test_records_below_the_watermark_are_never_replaced(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.deliver(1, 2)
    bench.receive(Deliver(2, b"other"), peer=OTHER)
    assert kept(bench.journal) == {1: data_of(1), 2: data_of(2)}


def test_a_journal_client_answers_requests_down_to_its_first_record(journal: Open) -> None:
    count = 5_000
    first = Bench(journal(), ClientConfig(start=3))
    for low in range(3, count, 500):
        first.deliver(*range(low, min(low + 500, count + 1)))
    bench = Bench(journal(), ClientConfig(start=3), now=first.now)
    for low in range(1, count, MAX_RANGE):
        bench.receive(Forward(OTHER, low, low + MAX_RANGE - 1))
        bench.run(0.5)
    given = {packet.sequence: packet.data for packet in bench.all(Deliver)}
    assert given == {number: data_of(number) for number in range(3, count + 1)}
    assert len(bench.all(Deliver)) == count - 2
    assert bench.client.drops.counts.get("forward_not_held", 0) == 0
    bench.receive(Forward(OTHER, 1, 2))
    assert bench.client.drops.counts["forward_not_held"] == 1


def test_a_damaged_frame_is_requested_and_repaired(tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), STREAM)
    for numbers in ([1, 2, 3], [5, 6], [7, 8]):
        records = [Record(STREAM, EPOCH, number, number, data_of(number)) for number in numbers]
        PendingWrites(1, records, []).save(journal)
    journal.close()
    file = next(tmp_path.glob("*.log"))
    found = bytearray(file.read_bytes())
    journal = Journal(LocalDirectory(tmp_path), STREAM)  # Damage after opening is found on reading.
    found[found.index(data_of(6))] ^= 1
    file.write_bytes(found)
    bench = Bench(journal, ClientConfig(start=1))
    bench.deliver(4, 9)
    bench.run(2)
    assert bench.client.store.damage_count
    assert {5, 6} <= bench.asked
    assert bench.sequences == [4]
    bench.deliver(5, 6, peer=OTHER)
    bench.run(2)
    assert bench.sequences == [4, 5, 6, 7, 8, 9]
    bench.receive(Forward(OTHER, 1, 9))
    assert [packet.sequence for packet in bench.all(Deliver)] == list(range(1, 10))
    damages: list[Any] = []
    healed = {
        record.sequence: record.payload
        for block in journal.read(EPOCH, 1, 9, damages.append)
        for record in block.records()
    }
    assert healed == {number: data_of(number) for number in range(1, 10)}
    journal.close()


def test_a_sequence_regression_is_detected_after_a_restart_without_the_old_records(
    journal: Open,
) -> None:
    kept = journal()
    kept.begin(0, 1_000_000)
    kept.append([Record(STREAM, 0, number, 1, data_of(number)) for number in range(1_000_000, 1_000_010)])
    kept.commit()
    bench = Bench(kept)
    bench.deliver(5, 6)
    assert not bench.all(ClientFailed)
    bench.deliver(7)
    assert [type(failed.error) for failed in bench.all(ClientFailed)] == [SequenceRegressed]


def test_records_above_a_gap_are_delivered_after_the_repair_on_an_idle_stream(journal: Open) -> None:
    kept = journal()
    kept.append([Record(STREAM, 0, number, 1, data_of(number)) for number in (1, 2, 4, 5)])
    kept.commit()
    bench = Bench(kept)
    bench.run(0.2)
    assert 3 in bench.asked
    bench.deliver(3, peer=OTHER)
    bench.run(0.2)
    assert bench.sequences == [3, 4, 5]


def test_holds_are_sent_to_a_backbone_that_sent_a_status(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    token = bench.client.keepalive.token
    bench.receive(Deliver(1, data_of(1)))
    assert bench.all(Holds) == []
    bench.receive(Status(token, 0, 1))
    bench.receive(Deliver(2, data_of(2)))
    bench.run(0.01)
    assert bench.all(Holds)[0] == Holds(token, 1, Holding(1, 1), 1)
    assert bench.all(Holds)[-1] == Holds(token, 1, Holding(1, 2), 2)
    told = len(bench.all(Holds))
    bench.now += 0.05
    bench.deliver(2)
    assert len(bench.all(Holds)) == told
    bench.receive(Status(token, 1, 2))
    assert len(bench.all(Holds)) == told + 1


def test_numbers_assigned_while_disconnected_do_not_hold_back_the_reached_number(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.receive(Status(bench.client.keepalive.token, 0, 0))
    bench.deliver(1)
    bench.run(0.01)
    assert bench.all(Holds)[-1].reached == 1
    bench.client.keepalive.connected = False
    bench.receive(Status(bench.client.keepalive.token, 0, 50))
    bench.deliver(51)
    bench.run(0.01)
    assert bench.all(Holds)[-1].reached == 51
    assert bench.all(Holds)[-1].holding.durable == 1


def test_an_empty_journal_reports_an_empty_holding(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=Start.LIVE))
    token = bench.client.keepalive.token
    bench.receive(Status(token, 0, 0))
    assert bench.all(Holds) == [Holds(token, 1, Holding(1, 0))]


def test_holds_are_sent_at_once_at_a_low_rate_and_coalesced_at_a_high_rate(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    bench.receive(Status(bench.client.keepalive.token, 0, 0))
    for sequence in range(1, 5):
        bench.now += 0.001
        bench.deliver(sequence)
        assert bench.all(Holds)[-1].holding.durable == sequence
    told = len(bench.all(Holds))
    for sequence in range(5, 50):
        bench.deliver(sequence)
    assert len(bench.all(Holds)) == told
    bench.run(0.003)
    assert [holds.holding.durable for holds in bench.all(Holds)[told:]] == [49]


def test_a_holding_begins_after_the_last_loss(journal: Open) -> None:
    first = journal()
    first.begin(EPOCH, 1)
    first.append([Record(STREAM, EPOCH, sequence, 1, data_of(sequence)) for sequence in (1, 2, 5)])
    first.lose(EPOCH, 3, 4)
    first.commit()
    bench = Bench(first, ClientConfig(start=1))
    bench.receive(Status(bench.client.keepalive.token, 0, 5))
    assert bench.all(Holds) == [Holds(bench.client.keepalive.token, 1, Holding(5, 5))]


def test_no_holds_are_sent_to_a_backbone_without_extensions(journal: Open) -> None:
    bench = Bench(journal(), ClientConfig(start=1))
    for sequence in range(1, 5):
        bench.receive(Deliver(sequence, data_of(sequence)))
        bench.run(1.0)
    bench.receive(Status(bytes(16), 0, 9))
    assert bench.all(Holds) == []


def test_a_journal_whose_first_record_is_0_continues_at_1() -> None:
    journal = MemoryJournal("fyrehose://test")
    journal.begin(EPOCH, 0)
    journal.commit()
    client = JournalClient(("10.0.0.1", 2323), ClientConfig(), journal, Random(1), 1_700_000_000.0)
    assert client.next_sequence == 1
