"""Event history of a node: a window in memory, and a journal for older events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

import cbor2
from zope.interface import implementer

from fyrehose_twisted.interfaces import IEventHistory, IJournal
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.parcels.node.ordering.history import EventWindow, SequencedRun
from fyrehose_twisted.parcels.wire.messages import Event
from fyrehose_twisted.record import Record

EPOCH = 0
"""Epoch of the journal. It is constant, because the sequence numbers of a cluster never restart."""

MAX_READ_BYTES = 4 * 2**20
"""Bytes of events after which one read returns."""


def stream_uri(cluster: str) -> str:
    """Return the journal URI of a cluster's events."""
    return f"parcels://{quote(cluster, safe='')}"


def pack_event(event: Event) -> bytes:
    """Encode an event for the journal: a CBOR array of publisher, epoch, publisher's number, and data."""
    return cbor2.dumps([event.publisher, event.epoch, event.number, event.data])


def unpack_event(sequence: int, payload: bytes) -> Event:
    """Decode an event of :func:`pack_event`.

    :raises ValueError: if ``payload`` is malformed.
    """
    try:
        publisher, epoch, number, data = cbor2.loads(payload)
    except (cbor2.CBORDecodeError, TypeError) as error:
        raise ValueError(f"record {sequence} of the journal is not an event: {error}") from error
    return Event(sequence, publisher, epoch, number, data)


@implementer(IEventHistory)
class JournalHistory:
    """Implementation of :class:`~fyrehose_twisted.interfaces.IEventHistory`. :meth:`save` persists added events.

    :param limit: maximum size of the window in bytes.
    :param now: UTC seconds since 1970.
    :ivar damages: number of damaged places found in the journal.
    """

    def __init__(self, journal: IJournal, limit: int, now: Callable[[], float]) -> None:
        bounds = journal.bounds(EPOCH)
        self.journal = journal
        self.damages = 0
        self._now = now
        self._unsaved_records: list[Record] = []
        self._lost: list[tuple[int, int]] = []
        self._has_records = bounds is not None
        self._highest = 0 if bounds is None else bounds.first - 1
        self._floor = self._highest + 1
        """Lowest sequence number after which the history has no gaps."""
        if bounds is not None:  # Events lost at its end are fetched from other nodes.
            held = list(journal.held(EPOCH, bounds.first, bounds.last))
            known = [*held, *journal.losses(EPOCH, bounds.first, bounds.last)]
            self._highest = max((last for _, last in known), default=self._highest)
            self._floor = held[-1][0] if held else self._highest + 1
        self._window = EventWindow(limit, self._highest)

    @property
    def last(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IEventHistory`."""
        return self._window.last

    @property
    def oldest(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IEventHistory`."""
        bounds: Bounds | None = self.journal.bounds(EPOCH)
        if bounds is None or bounds.first > self.last:
            return self._window.oldest
        return min(max(bounds.first, self._floor), self._window.oldest)

    def put(self, runs: Sequence[SequencedRun]) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IEventHistory.put`."""
        for stretch in runs:
            self._extend_to(stretch.first - 1)
            received_at = int(self._now() * 1_000_000)
            self._unsaved_records += [
                Record(self.journal.stream, EPOCH, event.sequence, received_at, pack_event(event))
                for event in stretch.events_between(max(stretch.first, self._highest + 1), stretch.end)
            ]
            self._highest = max(self._highest, stretch.end - 1)
        self._window.put(runs)

    def clear(self, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IEventHistory.clear`. The journal keeps its events."""
        self._extend_to(last)
        self._window.clear(last)

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """See :meth:`~fyrehose_twisted.interfaces.IEventHistory.read`.

        Fewer than there are, if they are large.
        """
        if first >= self._window.oldest:
            return self._window.read(first, last, limit)
        if first < self.oldest or limit < 1:
            return []
        found: list[Event] = []
        size, wanted = 0, first
        for block in self.journal.read(EPOCH, first, min(last, self.last, first + limit - 1), self._count_damage):
            for position, payload in zip(block.positions.tolist(), block.payloads(), strict=True):
                if position != wanted:
                    return found
                found.append(unpack_event(position, payload))
                wanted, size = wanted + 1, size + len(payload)
                if size > MAX_READ_BYTES:
                    return found
        return found

    def lose(self, first: int, last: int) -> None:
        """Record unavailable events; :meth:`save` marks them as lost in the journal."""
        self._lost.append((first, last))

    def save(self, *, sync: bool) -> None:
        """Commit added events; with ``sync=False``, a later commit makes them durable.

        :raises JournalError: if that fails.
        """
        if self._unsaved_records or self._lost:
            records, self._unsaved_records = self._unsaved_records, []
            lost, self._lost = self._lost, []
            self.journal.append(records, authoritative=True)
            for first, last in lost:
                self.journal.lose(EPOCH, first, last)
            self._has_records = self._has_records or bool(records)
            self.journal.commit(sync)
        elif sync:
            self.journal.commit()

    def _extend_to(self, last: int) -> None:
        """Continue after ``last``, and mark missing events before it as lost."""
        if last <= self._highest:
            return
        if self._has_records or self._unsaved_records:
            self._lost.append((self._highest + 1, last))
        self._highest, self._floor = last, last + 1

    def _count_damage(self, damage: Damage) -> None:
        self.damages += 1
