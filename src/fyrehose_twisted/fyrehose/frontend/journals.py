"""Progress of durable journals, and messages of the frontend that wait for it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.wire.packets import Holding, ranges_kept_by
from fyrehose_twisted.wording import pluralize

JOURNALS_GONE_AFTER = 2.0
"""Seconds without a journal after which there is none. A restarted backbone receives their reports within 1 s."""


class TooFewJournals(OperationalError):
    """Messages were published, but too few durable journals synced them in time.

    :ivar sequences: numbers of the messages.
    :ivar had: number of journals that have synced all of them.
    :ivar wanted: required number of journals.
    """

    def __init__(self, sequences: Sequence[int], had: int, wanted: int, reason: str) -> None:
        one = len(sequences) == 1
        what = f"message {sequences[0]} is" if one else f"{pluralize(len(sequences), 'message')} are"
        super().__init__(
            f"{what} published, and {had} of {wanted} durable journals had synced {'it' if one else 'them'} {reason}"
        )
        self.sequences = sequences
        self.had = had
        self.wanted = wanted


class _DurabilityWait(NamedTuple):
    last: int
    ticket: int
    sequences: Sequence[int]
    wanted: int
    deadline: float
    done: Deferred[Sequence[int]]


class JournalProgress:
    """Progress of the durable journals of the backbone, and messages that wait for it.

    :param config: limits; may be replaced at any time.
    :param on_change: called after each report, and when more may be published.
    :param min_journals: minimum number of journals whose progress limits publishing.
    :ivar unsynced_bytes: bytes of published messages that a followed journal has not synced.
    :ivar not_kept: number of messages for which :meth:`when_kept` failed.
    """

    def __init__(
        self, config: FrontendConfig, reactor: Any, on_change: Callable[[], None], min_journals: int = 1
    ) -> None:
        self.config = config
        self.unsynced_bytes = 0
        self.not_kept = 0
        self._reactor = reactor
        self._on_change = on_change
        self._min_journals = min_journals
        self._released_bytes = 0
        self._released_up_to = 0
        self._holdings: Sequence[Holding] = ()
        self._gone_at = 0.0
        self._unsynced: list[tuple[int, int]] = []
        self._waits: dict[int, _DurabilityWait] = {}
        self._heaps: dict[int, list[_DurabilityWait]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        """Return the number of pending waits."""
        return len(self._waits)

    @property
    def count(self) -> int:
        """Number of durable journals that the backbone reports."""
        return len(self._holdings)

    def allowance(self, in_flight: int) -> float:
        """Return the number of bytes that may be published now.

        Publishing stays within ``config.unsynced_bytes`` of the followed journals. These are the most advanced journals
        and those that have synced all earlier messages, so that a journal that catches up does not slow publishing
        down. There is no limit after :data:`JOURNALS_GONE_AFTER` seconds without a durable journal.

        :param in_flight: bytes that are not acknowledged by the backbone.
        """
        if not self._holdings and self._reactor.seconds() >= self._gone_at:
            return inf
        return self.config.unsynced_bytes - self.unsynced_bytes - in_flight

    def published(self, last: int, size: int) -> None:
        """Count ``size`` bytes of messages up to number ``last`` as unsynced."""
        self.unsynced_bytes += size
        heapq.heappush(self._unsynced, (last, size))
        self._release()

    def holdings_received(self, holdings: Sequence[Holding]) -> None:
        """Record the progress of the journals."""
        self._holdings = holdings
        if holdings:
            self._gone_at = self._reactor.seconds() + JOURNALS_GONE_AFTER
        self._release()
        for wanted, heap in self._heaps.items():
            reached, incomplete = self._durable_in(wanted), []
            while heap and heap[0].last <= reached:
                wait = heapq.heappop(heap)
                if wait.ticket not in self._waits:
                    continue
                if self._are_kept(wait.sequences, wanted):
                    del self._waits[wait.ticket]
                    wait.done.callback(wait.sequences)
                else:
                    incomplete.append(wait)  # A journal that lost a part may not be the only one.
            for wait in incomplete:
                heapq.heappush(heap, wait)
        self._on_change()

    def when_kept(self, sequences: Sequence[int], wanted: int) -> Deferred[Sequence[int]]:
        """Wait until ``wanted`` durable journals have synced published messages.

        :return: Deferred of their numbers. It fails with :class:`TooFewJournals` after ``config.keep_timeout`` seconds.
        """
        if self._are_kept(sequences, wanted):
            return succeed(sequences)
        self._tickets += 1
        ticket, deadline = self._tickets, self._reactor.seconds() + self.config.keep_timeout
        done: Deferred[Sequence[int]] = Deferred(lambda _: self._waits.__delitem__(ticket))
        wait = self._waits[ticket] = _DurabilityWait(max(sequences), ticket, sequences, wanted, deadline, done)
        heapq.heappush(self._heaps.setdefault(wanted, []), wait)
        return done

    def tick(self, seconds: float) -> None:
        """Fail timed-out waits, and release the bytes of the minimum rate.

        A journal that is slower than the minimum rate is not followed until it has caught up.

        :param seconds: seconds since the last call.
        """
        now = self._reactor.seconds()
        self._give_up([wait for wait in self._waits.values() if wait.deadline <= now], "in time")
        allowed, self._released_bytes = self.config.min_rate * seconds - self._released_bytes, 0
        while self._unsynced and allowed > 0:
            last, size = self._unsynced[0]
            taken = min(size, int(allowed) + 1)
            allowed -= taken
            self.unsynced_bytes -= taken
            self._released_up_to = max(self._released_up_to, last)
            if taken == size:
                heapq.heappop(self._unsynced)
            else:
                self._unsynced[0] = last, size - taken
        self._release()
        self._on_change()

    def stop(self) -> None:
        """Fail all pending waits."""
        self._give_up(list(self._waits.values()), "when the service stopped")

    def _give_up(self, late: Sequence[_DurabilityWait], reason: str) -> None:
        for wait in late:
            del self._waits[wait.ticket]
            self.not_kept += len(wait.sequences)
        for heap in self._heaps.values() if late else ():
            heap[:] = sorted(wait for wait in heap if wait.ticket in self._waits)
        for wait in late:
            had = min(map(self._count_durable, wait.sequences))
            wait.done.errback(TooFewJournals(wait.sequences, had, wait.wanted, reason))

    def _release(self) -> None:
        following = sum(holding.durable >= self._released_up_to for holding in self._holdings)
        reached = self._durable_in(max(following, self._min_journals))
        while self._unsynced and self._unsynced[0][0] <= reached:
            last, size = heapq.heappop(self._unsynced)
            self.unsynced_bytes -= size
            self._released_bytes += size
            self._released_up_to = max(self._released_up_to, last)

    def _durable_in(self, wanted: int) -> int:
        """Return the number up to which ``wanted`` journals have synced, or 0 if there are fewer journals."""
        kept = ranges_kept_by(wanted, self._holdings)
        return kept[-1][1] if kept else 0

    def _are_kept(self, sequences: Sequence[int], wanted: int) -> bool:
        # Numbers that a new leader of the backbones skipped may lie between those of one request.
        kept = ranges_kept_by(wanted, self._holdings)
        return all(any(first <= sequence <= last for first, last in kept) for sequence in sequences)

    def _count_durable(self, sequence: int) -> int:
        return sum(holding.keeps(sequence) for holding in self._holdings)
