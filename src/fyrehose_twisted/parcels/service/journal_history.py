"""Events that a node still has: a window in memory, and behind it a journal that reaches further back."""

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
"""Nothing restarts the numbers of a cluster."""

MAX_READ_BYTES = 4 * 2**20
"""Bytes of events after which no more are read for one question."""


def stream_uri(cluster: str) -> str:
    """Return the URI under which the events of a cluster are kept."""
    return f"parcels://{quote(cluster, safe='')}"


def pack_event(event: Event) -> bytes:
    """Return an event as the journal has it: a CBOR array of publisher, epoch, the publisher's number, and data."""
    return cbor2.dumps([event.publisher, event.epoch, event.number, event.data])


def unpack_event(sequence: int, payload: bytes) -> Event:
    """Return the event that :func:`pack_event` was given. :raises ValueError: if ``payload`` is not one."""
    try:
        publisher, epoch, number, data = cbor2.loads(payload)
    except (cbor2.CBORDecodeError, TypeError) as error:
        raise ValueError(f"record {sequence} of the journal is no event: {error}") from error
    return Event(sequence, publisher, epoch, number, data)


@implementer(IEventHistory)
class JournalHistory:
    """See :class:`~fyrehose_twisted.interfaces.IEventHistory`. What is put here waits for :meth:`save`.

    :param limit: bytes of memory for the window.
    :param now: UTC seconds since 1970.
    :ivar damages: how often something in the journal was found damaged.
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
        """From here on there is no hole."""
        if bounds is not None:  # Its end may be gone, and comes again from others.
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
        """See :meth:`~fyrehose_twisted.interfaces.IEventHistory.clear`; the journal forgets nothing."""
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
        """Events can no longer be had; :meth:`save` says so in the journal."""
        self._lost.append((first, last))

    def save(self, *, sync: bool) -> None:
        """Commit what was put here; with ``sync=False``, leave it to a later commit to make it durable.

        :raises JournalError: if that failed.
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
        """The next event is the one after ``last``; what is missing before it is lost."""
        if last <= self._highest:
            return
        if self._has_records or self._unsaved_records:
            self._lost.append((self._highest + 1, last))
        self._highest, self._floor = last, last + 1

    def _count_damage(self, damage: Damage) -> None:
        self.damages += 1
