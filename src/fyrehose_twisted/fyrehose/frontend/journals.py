"""Durable journals of a frontend's backbone: how far they have synced, and the messages that wait for that."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.wire.packets import Holding
from fyrehose_twisted.wording import pluralize

JOURNALS_GONE_AFTER = 2.0
"""Seconds without a journal until there is none: a backbone that was started anew hears of them within one."""


class TooFewJournals(OperationalError):
    """Messages were published, and fewer durable journals than wanted had them in time.

    :ivar sequences: their numbers.
    :ivar had: journals that had synced all of them.
    :ivar wanted: journals that were to.
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
    first: int
    sequences: Sequence[int]
    wanted: int
    deadline: float
    done: Deferred[Sequence[int]]


class JournalProgress:
    """Journals that the backbone tells of, and what they have yet to sync.

    :param config: limits; may be replaced at any time.
    :param changed: called when journals have synced more.
    :param least: how many journals are waited for in any case before more is published.
    :ivar unsynced_bytes: bytes of messages that came back from the backbone and that a followed journal has not synced.
    :ivar not_kept: messages for which :meth:`when_kept` gave up.
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
        """Return how many runs of messages wait to be kept."""
        return len(self._waits)

    @property
    def count(self) -> int:
        """Durable journals that the backbone tells of."""
        return len(self._holdings)

    def allowance(self, in_flight: int) -> float:
        """Return the bytes that may be published now.

        Messages are published no further than ``config.unsynced_bytes`` ahead of the journals that are followed. Those
        are the ones that have synced most, and those that have synced all before, so that one that catches up is not
        waited for. Where there has been no durable journal for :data:`JOURNALS_GONE_AFTER` nothing is held back.

        :param in_flight: bytes that have not come back from the backbone.
        """
        if not self._holdings and self._reactor.seconds() >= self._gone_at:
            return inf
        return self.config.unsynced_bytes - self.unsynced_bytes - in_flight

    def published(self, last: int, size: int) -> None:
        """Count ``size`` bytes of messages, of which ``last`` is the highest number, until the journals have them."""
        self.unsynced_bytes += size
        heapq.heappush(self._unsynced, (last, size))
        self._release()

    def holdings_received(self, holdings: Sequence[Holding]) -> None:
        """Take in how far the journals have synced."""
        self._holdings = holdings
        if holdings:
            self._gone_at = self._reactor.seconds() + JOURNALS_GONE_AFTER
        self._release()
        for wanted, heap in self._heaps.items():
            reached = self._durable_in(wanted)
            while heap and heap[0].last <= reached:
                wait = heapq.heappop(heap)
                # A run of which a journal lost a part waits for its deadline, outside of the heap.
                if wait.ticket in self._waits and self._count_durable(wait.first, wait.last) >= wanted:
                    del self._waits[wait.ticket]
                    wait.done.callback(wait.sequences)
        self._on_change()

    def when_kept(self, sequences: Sequence[int], wanted: int) -> Deferred[Sequence[int]]:
        """Wait until ``wanted`` durable journals have synced messages that are published.

        :return: Deferred of their numbers. It fails with :class:`TooFewJournals` after ``config.keep_timeout`` seconds.
        """
        first, last = min(sequences), max(sequences)
        if self._count_durable(first, last) >= wanted:
            return succeed(sequences)
        self._tickets += 1
        ticket, deadline = self._tickets, self._reactor.seconds() + self.config.keep_timeout
        done: Deferred[Sequence[int]] = Deferred(lambda _: self._waits.__delitem__(ticket))
        wait = self._waits[ticket] = _DurabilityWait(last, ticket, first, sequences, wanted, deadline, done)
        heapq.heappush(self._heaps.setdefault(wanted, []), wait)
        return done

    def tick(self, seconds: float) -> None:
        """Give up what has waited for too long, and let out what may be published in any case.

        A journal that has made less progress than that is not followed any more, until it has caught up.

        :param seconds: since this was called last.
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
        """Wait no longer for any message."""
        self._give_up(list(self._waits.values()), "when the service stopped")

    def _give_up(self, late: Sequence[_DurabilityWait], reason: str) -> None:
        for wait in late:
            del self._waits[wait.ticket]
            self.not_kept += len(wait.sequences)
        for heap in self._heaps.values() if late else ():
            heap[:] = sorted(wait for wait in heap if wait.ticket in self._waits)
        for wait in late:
            had = self._count_durable(wait.first, wait.last)
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
        """Return the last number up to which so many journals have synced, 0 if there are fewer."""
        durable = sorted((holding.durable for holding in self._holdings), reverse=True)
        return durable[wanted - 1] if len(durable) >= wanted else 0

    def _count_durable(self, first: int, last: int) -> int:
        return sum(holding.keeps(first) and holding.keeps(last) for holding in self._holdings)
