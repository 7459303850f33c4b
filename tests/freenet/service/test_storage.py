from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.logger import capturedLogs

from fyrehose_twisted.freenet.events import Packet, PacketsDelivered, PacketsMissed, StreamRenumbered
from fyrehose_twisted.freenet.service.storage import PacketJournal, PacketStorage, stream_uri
from fyrehose_twisted.journal.errors import JournalInUse
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.store import open_journal

KEY = bytes(range(20))
HIGHEST = 2**63 - 1


def delivered(*numbers: int) -> PacketsDelivered:
    return PacketsDelivered(KEY, [Packet(number, b"packet %d" % number) for number in numbers])


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal(stream_uri(KEY))


@pytest.fixture
def packets(journal: MemoryJournal) -> PacketJournal:
    return PacketJournal(journal, lambda: 7.0)


def kept(journal: Any) -> dict[int, list[int]]:
    """Return the packet numbers by epoch."""
    found: dict[int, list[int]] = {}
    for epoch in journal.epochs():
        bounds = journal.bounds(epoch)
        blocks = journal.read(epoch, bounds.first, bounds.last)
        found[epoch] = [number for block in blocks for number in block.positions.tolist()]
    return found


def test_packets_are_journalled_as_records(journal: MemoryJournal, packets: PacketJournal) -> None:
    assert packets.last_seen == -1
    packets.write(delivered(100, 101))
    journal.commit()
    assert journal.get(0, 101) == (stream_uri(KEY), 0, 101, 7_000_000, b"packet 101")
    assert packets.last_seen == 101


def test_packets_lost_from_the_end_of_a_journal_are_requested_again(tmp_path: Path) -> None:
    with closing(open_journal(tmp_path, stream_uri(KEY))) as journal:
        packets = PacketJournal(journal)
        for numbers in (range(100, 103), range(103, 106)):
            packets.write(delivered(*numbers))
            journal.commit()
    (file,) = tmp_path.glob("*/*.log")
    file.write_bytes(file.read_bytes().replace(b"packet 104", b"pocket 104"))
    with closing(open_journal(tmp_path, stream_uri(KEY))) as journal:
        packets = PacketJournal(journal)
        assert packets.last_seen == 102
        packets.write(delivered(103, 104, 105))
        journal.commit()
        assert packets.last_seen == 105
        assert kept(journal) == {0: list(range(100, 106))}


def test_missed_packets_are_recorded_as_lost_and_pending_ones_are_not(
    journal: MemoryJournal, packets: PacketJournal
) -> None:
    packets.write(delivered(100, 103))
    journal.commit()
    assert packets.last_seen == 100
    packets.write(PacketsMissed(KEY, 101, 102))
    journal.commit()
    assert journal.losses(0, 100, 103) == [(101, 102)]
    assert packets.last_seen == 103


def test_a_renumbered_stream_starts_a_new_epoch(journal: MemoryJournal, packets: PacketJournal) -> None:
    packets.write(delivered(100))
    packets.write(StreamRenumbered(KEY, 5))
    packets.write(delivered(5, 6))
    journal.commit()
    assert kept(journal) == {0: [100], 1: [5, 6]}
    again = PacketJournal(journal)
    assert again.last_seen == 6
    again.write(delivered(7))
    journal.commit()
    assert kept(journal) == {0: [100], 1: [5, 6, 7]}


def test_numbers_that_wrap_around_start_a_new_epoch(journal: MemoryJournal, packets: PacketJournal) -> None:
    packets.write(delivered(HIGHEST))
    journal.commit()
    packets.write(delivered(0, 1))
    journal.commit()
    assert kept(journal) == {0: [HIGHEST], 1: [0, 1]}


def test_packets_before_the_beginning_of_a_journal_are_logged(journal: MemoryJournal, packets: PacketJournal) -> None:
    packets.write(delivered(100))
    journal.commit()
    with capturedLogs() as logs:
        packets.write(delivered(99))
    assert [log["log_format"] for log in logs] == ["packet {number:,} of {stream} arrived too late"]
    assert kept(journal) == {0: [100]}


@pytest_twisted.ensureDeferred
async def test_journals_are_in_a_directory_and_locked(tmp_path: Path) -> None:
    keeping, other = PacketStorage(tmp_path / "kept"), PacketStorage(tmp_path / "kept")
    keeping.check([KEY])
    opened = keeping.open(KEY, reactor, pytest.fail)
    assert keeping.open(KEY, reactor, pytest.fail) is opened
    opened.write(delivered(3))
    with pytest.raises(JournalInUse):
        other.check([bytes(20), KEY])
    with pytest.raises(JournalInUse):
        other.open(KEY, reactor, pytest.fail)
    await keeping.close()
    other.check([KEY])
    with closing(open_reader(tmp_path / "kept" / f"freenet-{KEY.hex()}")) as reader:
        assert kept(reader) == {0: [3]}
