"""Packets as records of journals: stream ``freenet://KEY``, sequence = number of the packet. The epoch is 0 at first,
and increases each time that a stream is renumbered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from twisted.logger import Logger

from fyrehose_twisted.freenet.events import PacketsDelivered, PacketsMissed, StreamRenumbered
from fyrehose_twisted.freenet.node.packet_window import HALF_NUMBER_SPACE
from fyrehose_twisted.freenet.wire.messages import NONE_SEEN
from fyrehose_twisted.interfaces import IJournal
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.store import JournalConfig, check_unlocked
from fyrehose_twisted.journal.upkeep.maintenance import MaintainedJournal
from fyrehose_twisted.record import Record

JournalEvent = PacketsDelivered | PacketsMissed | StreamRenumbered


def stream_uri(key: bytes) -> str:
    """Return the URI of a stream."""
    return f"freenet://{key.hex()}"


class PacketJournal:
    """Journal of the packets of one stream.

    :param clock: UTC seconds since 1970.
    """

    log = Logger()

    def __init__(self, journal: IJournal, clock: Callable[[], float] = time.time) -> None:
        self.journal = journal
        self._clock = clock
        self._epoch: int = max(journal.epochs(), default=0)

    @property
    def last_seen(self) -> int:
        """Highest packet number without a gap before it; -1 if there is none."""
        bounds: Bounds | None = self.journal.bounds(self._epoch)
        return NONE_SEEN if bounds is None else bounds.next - 1

    def write(self, event: JournalEvent) -> None:
        """Append packets, or record that packets were missed.

        :raises JournalError: if the journal cannot be written.
        """
        journal = self.journal
        match event:
            case PacketsDelivered(_, packets):
                now = int(self._clock() * 1_000_000)
                journal.append(
                    [
                        Record(journal.stream, self._packet_epoch(one.number), one.number, now, one.data)
                        for one in packets
                    ],
                    authoritative=True,
                )
            case PacketsMissed(_, first, last) if first <= last:
                journal.lose(self._epoch, first, last)
            case StreamRenumbered(_, first):
                self._epoch += 1
                journal.begin(self._epoch, first)
        journal.commit(False)

    def _packet_epoch(self, number: int) -> int:
        """Return the epoch of a packet. A new epoch begins when the numbers wrap around."""
        bounds: Bounds | None = self.journal.bounds(self._epoch)
        if bounds is not None and bounds.first - number > HALF_NUMBER_SPACE:
            self._epoch += 1
            self.journal.begin(self._epoch, number)
        elif bounds is not None and number < bounds.first:
            self.log.warn("packet {number:,} of {stream} arrived too late", number=number, stream=self.journal.stream)
        return self._epoch


class _OpenJournal(NamedTuple):
    maintained: MaintainedJournal
    packets: PacketJournal


class PacketStorage:
    """Journal files of one node.

    :param directory: directory of journals; created if missing.
    """

    def __init__(self, directory: Path, *, config: JournalConfig | None = None) -> None:
        self.directory = directory
        self._config = config
        self._journals: dict[bytes, _OpenJournal] = {}

    def check(self, keys: Iterable[bytes]) -> None:
        """Check that no other process writes the journals of some streams.

        :raises JournalError: if one does, or if that cannot be determined.
        """
        for key in keys:
            check_unlocked(self.directory, stream_uri(key))

    def has(self, key: bytes) -> bool:
        """Return whether a stream has a journal."""
        return key in self._journals or (self.directory / directory_name(stream_uri(key))).is_dir()

    def open(self, key: bytes, reactor: Any, on_failure: Callable[[Exception], object]) -> PacketJournal:
        """Return the journal of a stream, the same one each time.

        :param on_failure: called if the journal fails later.
        :raises JournalError: if it cannot be read or written, or is in use.
        """
        if key not in self._journals:
            maintained = MaintainedJournal(
                self.directory,
                stream_uri(key),
                reactor,
                config=self._config,
                on_failure=on_failure,
            )
            self._journals[key] = _OpenJournal(maintained, PacketJournal(maintained.journal))
        return self._journals[key].packets

    async def close(self) -> None:
        """Make everything durable and close all journals.

        :raises JournalError: if that failed.
        """
        every, self._journals = self._journals, {}
        for one in every.values():
            await one.maintained.stop()
        for one in every.values():
            one.maintained.journal.close()
